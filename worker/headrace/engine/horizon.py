"""The horizon service: one per process and event table, shared by all subscriptions.

Looking costs more the more locks the whole server has, so concurrent callers share one look, and the
clock only looks when nobody else did. Whoever reads rows takes the line first and the rows in a later
statement. A horizon is never stored as a position: a crash of the server can take the sequence back.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.domain.engine_events import DatabaseFound, DatabaseLost, HorizonHeld
from headrace.domain.errors import NotExact, Unavailable
from headrace.domain.horizon import Holder, Horizon, HorizonTracker
from headrace.domain.ids import START, Position
from headrace.ports.clock import Clock
from headrace.ports.horizon import HolderReport, HorizonSource
from headrace.ports.observer import Observer

LEAST_PAUSE = 0.001
"""Pauses shorter than this, in seconds, are none."""


@dataclass(frozen=True, slots=True)
class HorizonPace:
    """How often the service looks by itself, and when a held line is worth telling; in seconds.

    ``reading``: how long after the last look it leaves looking to readers that are at work. While the
    line moves it rests ``ease`` times as long as a look took, from ``fastest`` to ``eased``: on a
    loaded server looking must not take from the appenders what they need.
    """

    fastest: float = 0.015
    eased: float = 0.05
    ease: float = 10.0
    slowest: float = 0.25
    reading: float = 2.0
    growth: float = 1.5
    lost_slowest: float = 5.0
    held_after: float = 1.0
    held_every: float = 10.0


class HorizonService:
    """Keeps the line of one event table.

    ``refresh`` is what a router calls before each batch, ``recent`` when it has just waited for the line;
    ``run`` is the service's own loop, for when nobody does. ``exact=False`` accepts a table with
    problems, which ``problems`` keeps naming.
    """

    def __init__(
        self,
        source: HorizonSource,
        clock: Clock,
        observer: Observer | None = None,
        *,
        exact: bool = True,
        pace: HorizonPace | None = None,
    ) -> None:
        self._source = source
        self._clock = clock
        self._observer = observer
        self._exact = exact
        self._pace = pace or HorizonPace()
        self._tracker = HorizonTracker()
        self._turn = asyncio.Lock()
        self._started = 0
        self._finished = 0
        self._latest: Horizon | None = None
        self._looked_at = float("-inf")
        self._interval = self._pace.fastest
        self._readers = 0
        self._lost = False
        self._lost_at = 0
        self._told: tuple[Holder, float] | None = None
        self.notes: tuple[str, ...] = ()

    @property
    def latest(self) -> Horizon | None:
        """The newest horizon; None before the first look."""
        return self._latest

    @property
    def problems(self) -> tuple[str, ...]:
        """Why this table cannot be read exactly; empty when it can."""
        return self._latest.problems if self._latest else ()

    async def start(self) -> Horizon:
        """Check the table and take the first horizon.

        Raises:
            NotExact: the table cannot be read exactly and nobody accepted that, or the server is a standby.
            Unavailable: the database cannot be reached.

        """
        check = await self._source.check()
        self._refuse(check.problems)
        self.notes = check.notes
        return await self.refresh()

    async def refresh(self) -> Horizon:
        """Return a horizon whose look began after this call; concurrent callers share one.

        Raises:
            NotExact: as ``start``.
            Unavailable: the database cannot be reached; the next call begins anew.

        """
        asked = self._started
        async with self._turn:
            if self._latest is not None and self._finished > asked:
                return self._latest
            return await self._look()

    async def recent(self, seconds: float) -> Horizon:
        """Return the newest horizon if its look ended at most so long ago and none has failed since; else a new one.

        An older one would be a danger: the server may have crashed since and the sequence gone back.

        Raises what ``refresh`` does.
        """
        latest, undisturbed = self._latest, self._finished == self._started
        if latest is not None and undisturbed and self._clock.monotonic() - self._looked_at <= seconds:
            return latest
        return await self.refresh()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Route or read a batch in this block, refreshing before each: the clock need not look as well."""
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1

    async def wait_advanced(self, beyond: Position, timeout: float, starts: int) -> Horizon:
        """Return as soon as the line is above ``beyond``, or after ``timeout`` seconds; the newest horizon.

        At once when the line was begun anew since the caller's count of ``starts``. Raises what ``refresh`` does.
        """
        deadline = self._clock.monotonic() + timeout
        horizon = self._latest or await self.refresh()
        while (
            horizon.line <= beyond
            and horizon.starts == starts
            and (left := deadline - self._clock.monotonic()) > LEAST_PAUSE
        ):
            # Not longer than this, because a reader's look may have found more meanwhile.
            await self._clock.sleep(min(self._due_in(), left, self._pace.slowest))
            horizon = await self._look_when_due() or horizon
        return horizon

    async def holder(self) -> HolderReport | None:
        """Return who holds the line now, None when nobody was met twice or it has ended meanwhile."""
        held_by = self._latest.held_by if self._latest else None
        return None if held_by is None else await self._source.describe(held_by)

    async def run(self) -> None:
        """Look again and again until cancelled, whenever nobody else did; survives a restart of the database.

        Raises:
            NotExact: the table stopped being readable exactly, and nobody accepted that.

        """
        while True:
            # Whoever waits for the line looks as often as that needs; for all others this is often enough.
            if (due_in := self._due_in(self._pace.slowest)) > 0:
                await self._clock.sleep(min(due_in, self._pace.slowest))
            try:
                # A reader may have looked meanwhile: then there is only to say what it found.
                await self._look_when_due(self._pace.slowest)
                await self._tell_held()
            except Unavailable as error:
                self._tell_lost(error)
            else:
                self._tell_found()

    async def _look_when_due(self, least: float = 0.0) -> Horizon | None:
        """Look, unless somebody has while this waited for its turn: who wakes together shares a look in flight."""
        async with self._turn:
            return await self._look() if self._due_in(least) <= 0 else self._latest

    def _due_in(self, least: float = 0.0) -> float:
        # Rounded down: a sleep may end a moment early, and the rest of it would be a loop of tiny sleeps.
        interval = max(self._interval, least, self._pace.reading if self._readers else 0.0)
        due_in = self._looked_at + interval - self._clock.monotonic()
        return due_in if due_in > LEAST_PAUSE else 0.0

    async def _look(self) -> Horizon:
        self._started += 1
        number, began = self._started, self._clock.monotonic()
        try:
            horizon = await self._probe()
        except Unavailable:
            # The server may have crashed meanwhile and the sequence gone back.
            self._tracker.forget()
            self._slow_down(self._pace.lost_slowest)
            raise
        finally:
            self._looked_at = self._clock.monotonic()
        if self._latest is None or (horizon.line, horizon.head) != (self._latest.line, self._latest.head):
            took = self._looked_at - began
            self._interval = min(max(self._pace.ease * took, self._pace.fastest), self._pace.eased)
        else:
            self._slow_down(self._pace.slowest)
        self._latest = horizon
        self._finished = number
        return horizon

    async def _probe(self) -> Horizon:
        began = self._clock.monotonic()
        probe = await self._source.probe()
        self._refuse(probe.problems)
        base = await self._source.stored_position() if self._tracker.starts_with(probe) else START
        horizon = self._tracker.observe(probe, base, began)
        if self._tracker.wants_contiguous:
            found = await self._source.contiguous_from(horizon.line, probe.sequence)
            if found > horizon.line:
                horizon = self._tracker.extend(found)
        return horizon

    def _refuse(self, problems: tuple[str, ...]) -> None:
        if problems and self._exact:
            raise NotExact("; ".join(problems) + "; or accept missed events with exact=False in the mapping")

    def _slow_down(self, slowest: float) -> None:
        self._interval = min(max(self._interval, self._pace.fastest) * self._pace.growth, slowest)

    async def _tell_held(self) -> None:
        horizon, now = self._latest, self._clock.monotonic()
        if self._observer is None or horizon is None or horizon.held_by is None or horizon.held_since is None:
            return
        if now - horizon.held_since < self._pace.held_after:
            return
        if self._told is not None and self._told[0] == horizon.held_by and now - self._told[1] < self._pace.held_every:
            return
        report = await self._source.describe(horizon.held_by)
        if report is None:
            return
        self._told = (horizon.held_by, now)
        age = now - horizon.held_since if report.age is None else report.age
        self._observer.notice(HorizonHeld("", horizon.line, horizon.head, str(report), age))

    def _tell_lost(self, error: Unavailable) -> None:
        if not self._lost and self._observer is not None:
            self._observer.notice(DatabaseLost("", str(error), self._interval))
        self._lost = True
        self._lost_at = self._finished

    def _tell_found(self) -> None:
        if not self._lost or self._finished == self._lost_at:
            return
        if self._observer is not None:
            self._observer.notice(DatabaseFound(""))
        self._lost = False
