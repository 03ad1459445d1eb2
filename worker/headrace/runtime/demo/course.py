"""The course of the demonstration: what happens one after the other, told while it happens.

Workers start beside the import. One is killed while it holds work, and the take-over is seen. A key that fails is
parked while everything else goes on, until a release with the fix is rolled out. Then SQL judges.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from headrace.domain.errors import HeadraceError, NotFinished
from headrace.runtime.demo.crew import Member
from headrace.runtime.demo.figures import FailingKey, Figures, Mark, StoryLine
from headrace.runtime.demo.lookout import Lookout
from headrace.runtime.demo.scene import Script, Stage
from headrace.runtime.demo.verdict import Verdict, judge
from headrace.runtime.importing import Imported, import_file
from headrace.store.events import PostgresEvents
from headrace.store.failures import PostgresFailures
from headrace.store.mapping import inspect_table
from headrace.store.migrate import migrate
from headrace.store.pool import Database, Session

LOOK_SECONDS = 0.3
REST = 4.0
"""Between two looks there is at least so many times as much rest as a look takes."""
PATIENCE_SECONDS = 120.0
"""So long may pass without any progress."""
KILL_AFTER = 0.3
"""So much of the log is imported, and of that handled by each subscription, when a worker is killed."""
SETTLE_SECONDS = 0.1
"""What a frozen worker has sent by then, the database has done."""


class Show(Protocol):
    """Who sees the demonstration."""

    def tell(self, line: StoryLine) -> None:
        """Hear what has happened."""
        ...

    def see(self, figures: Figures) -> None:
        """See the figures of this moment."""
        ...


@dataclass(frozen=True, slots=True)
class Ending:
    """What came of it. Times in seconds; None where it did not come to that."""

    verdicts: tuple[Verdict, ...] = ()
    events: int = 0
    handled: int = 0
    seconds: float = 0.0
    taken_over_keys: int | None = None
    taken_over_after: float | None = None
    parked: FailingKey | None = None

    @property
    def is_right(self) -> bool:
        """Whether every read model is what SQL says."""
        return bool(self.verdicts) and all(verdict.right for verdict in self.verdicts)


class Course:
    """One performance."""

    def __init__(self, stage: Stage, script: Script, show: Show, began: float) -> None:
        """Take where it takes place, how large it is, who sees it, and when it began by the monotonic clock."""
        self._stage = stage
        self._script = script
        self._show = show
        self._lookout = Lookout(stage.plot, stage.crew, began)
        self._figures = self._lookout.blind()
        self._moved_at = 0.0
        self._look_seconds = 0.0
        self._ending = Ending(events=stage.plot.events)

    async def play(self) -> Ending:
        """Play from the empty database to the verdict.

        Raises:
            HeadraceError: a worker ended by itself, or nothing moved for minutes.

        """
        stage = self._stage
        stage.prepare()
        await migrate(stage.dsn)
        pids = " and ".join(str(stage.crew.start(release=1).pid) for _ in range(self._script.workers))
        self._tell(
            Mark.STEP, f"{_count(self._script.workers, 'worker process', 'worker processes')} started, pid {pids}"
        )
        path = await asyncio.to_thread(stage.log_of, self._script)
        self._tell(Mark.STEP, f"the import of {_count(stage.plot.events, 'event')} of {stage.plot.subject} begins")
        async with await Database.open(stage.dsn, max_size=2, application_name="headrace demo") as database:
            async with database.session() as session:
                await self._act(database, session, path)
            return replace(self._ending, verdicts=tuple(await self._judged()))

    async def _act(self, database: Database, session: Session, path: Path) -> None:
        began = self._lookout.at
        importing = asyncio.create_task(self._import(path), name="import")
        try:
            await self._lose_a_worker(session, importing)
            await self._until(session, lambda _: importing.done())
            await importing
            self._tell(Mark.STEP, f"the whole log is imported, {_count(self._stage.plot.events, 'event')}")
            await self._until(session, lambda figures: figures.is_blocked_only)
            await self._until(session, lambda figures: figures.is_caught_up or _is_parked(figures))
            await self._mend(database, session)
            await self._until(session, lambda figures: figures.is_caught_up)
        finally:
            importing.cancel()
            with suppress(asyncio.CancelledError, HeadraceError):
                await importing
        seconds = self._lookout.at - began
        self._ending = replace(self._ending, handled=self._figures.handled, seconds=seconds)
        self._tell(Mark.GOOD, f"everything is handled: {self._figures.handled:,} deliveries in {seconds:.0f} s")
        await self._see_off(session, self._stage.crew.at_work)
        self._tell(Mark.STEP, "the workers have drained and ended")

    async def _import(self, path: Path) -> None:
        def note(done: Imported) -> None:
            self._lookout.imported = done.events

        async with await Database.open(self._stage.dsn, max_size=1, application_name="headrace import") as database:
            events = await PostgresEvents.open(database)
            with path.open("rb") as file:
                await import_file(file, events, note)

    async def _lose_a_worker(self, session: Session, importing: "asyncio.Task[None]") -> None:
        """Kill a worker that holds work, and see its work taken over."""
        while not (importing.done() and self._figures.is_blocked_only):
            if importing.done():
                importing.result()
            await self._look(session)
            victim = self._busiest()
            if victim is not None and await self._kill_if_busy(session, victim):
                await self._see_taken_over(session, victim)
                return
            await self._pause()
        self._tell(Mark.STEP, "the log is too short to catch a worker at work: none is killed")

    def _busiest(self) -> Member | None:
        """Return the worker that holds most, once the work is well under way; never the last one."""
        figures, crew = self._figures, self._stage.crew
        begun = len(figures.subscriptions) == figures.wanted and figures.imported >= KILL_AFTER * figures.events
        if not begun or figures.handled < KILL_AFTER * figures.imported or len(crew.at_work) < 2:  # noqa: PLR2004
            return None
        return max(crew.at_work, key=lambda member: figures.worker(member.number).events)

    async def _kill_if_busy(self, session: Session, victim: Member) -> bool:
        crew = self._stage.crew
        crew.freeze(victim)
        try:
            await asyncio.sleep(SETTLE_SECONDS)
            held = (await self._look(session)).worker(victim.number)
        except BaseException:
            crew.thaw(victim)
            raise
        if held.keys == 0:
            crew.thaw(victim)
            return False
        crew.kill(victim)
        what = f"it held {_count(held.keys, 'key')} with {_count(held.events, 'event')}"
        self._tell(Mark.BAD, f"worker {victim.number} is killed (kill -9 {victim.pid}): {what}")
        self._ending = replace(self._ending, taken_over_keys=held.keys)
        return True

    async def _see_taken_over(self, session: Session, victim: Member) -> None:
        killed_at = self._lookout.at
        self._tell(Mark.WAIT, "nobody else touches these keys until the dead worker's lease has run out")
        await self._until(session, lambda figures: figures.worker(victim.number).leases == 0)
        after = self._lookout.at - killed_at
        self._ending = replace(self._ending, taken_over_after=after)
        what = _count(self._ending.taken_over_keys or 0, "key")
        self._tell(Mark.GOOD, f"take-over after {after:.1f} s: others go on with {what}, from the last flush on")
        successor = self._stage.crew.start(release=1)
        self._tell(Mark.STEP, f"worker {successor.number} is started in its place, pid {successor.pid}")

    async def _mend(self, database: Database, session: Session) -> None:
        """Roll out a release with the fix, and resume what is parked."""
        parked = next((failing for failing in self._figures.failing if failing.state == "parked"), None)
        if parked is None:
            self._tell(Mark.STEP, "no key has failed")
            return
        self._ending = replace(self._ending, parked=parked)
        self._tell(
            Mark.STEP, f"all is handled but {_count(parked.waiting + 1, 'event')} of {parked.key}, which is parked"
        )
        crew, old = self._stage.crew, self._stage.crew.at_work
        self._tell(
            Mark.STEP,
            f"release 2, which {self._stage.plot.fix}, is rolled out: {_count(len(old), 'worker')} to replace",
        )
        for _ in old:
            crew.start(release=2)
        await self._see_off(session, old)
        table = await inspect_table(session, None)
        await PostgresFailures(database, table).resume(
            [parked.subscription], None, "headrace demo", "fixed in release 2"
        )
        self._tell(Mark.STEP, f"headrace failures resume {parked.subscription}")
        await self._until(session, lambda figures: not figures.failing)
        self._tell(Mark.GOOD, f"{parked.key} goes on: the event that failed, then the {parked.waiting:,} behind it")

    async def _see_off(self, session: Session, members: list[Member]) -> None:
        """Drain workers and see them end; not before everybody is up, so that a signal finds who listens to it."""
        await self._until(session, lambda _: not self._stage.crew.starting)
        for member in members:
            self._stage.crew.drain(member)
        await self._until(session, lambda _: not any(member.condition.is_running for member in members))

    async def _judged(self) -> list[Verdict]:
        self._tell(Mark.WAIT, "SQL over the log says what the read models must be …")
        return await judge(self._stage.dsn, self._stage.mailbox, self._stage.plot)

    async def _until(self, session: Session, condition: Callable[[Figures], bool]) -> None:
        """Look until a look satisfies."""
        while True:
            if condition(await self._look(session)):
                return
            await self._pause()

    async def _pause(self) -> None:
        """Rest between two looks; longer where a look takes long, so that looking costs little of the machine."""
        await asyncio.sleep(max(LOOK_SECONDS, REST * self._look_seconds))

    async def _look(self, session: Session) -> Figures:
        began = self._lookout.at
        before, self._figures = self._figures, await self._lookout.look(session)
        self._look_seconds = self._lookout.at - began
        now = self._figures
        if (now.imported, now.handled, now.inbox, now.failing) != (
            before.imported,
            before.handled,
            before.inbox,
            before.failing,
        ):
            self._moved_at = now.at
        elif now.at - self._moved_at > PATIENCE_SECONDS:
            raise NotFinished(f"nothing has moved for {PATIENCE_SECONDS:g} s: {now}")
        if self._ending.parked is None and _is_parked(now):
            self._notice_parked(now)
        self._show.see(now)
        return now

    def _notice_parked(self, figures: Figures) -> None:
        parked = next(failing for failing in figures.failing if failing.state == "parked")
        self._ending = replace(self._ending, parked=parked)
        why = f"{self._stage.plot.mistake} ({parked.error})"
        self._tell(Mark.BAD, f"{parked.subscription}#{parked.key} is parked: {why}; all other keys go on")

    def _tell(self, mark: Mark, text: str) -> None:
        self._show.tell(StoryLine(self._lookout.at, mark, text))


def _is_parked(figures: Figures) -> bool:
    return any(failing.state == "parked" for failing in figures.failing)


def _count(number: int, thing: str, things: str | None = None) -> str:
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"
