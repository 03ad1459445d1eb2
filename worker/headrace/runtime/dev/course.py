"""The course of `headrace dev`: the schema, the worker, what is saved, how it stands, until somebody ends it.

It tells what happens in plain sentences; how they and the status are shown is the business of whoever listens.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.domain.errors import HeadraceError
from headrace.runtime.dev.database import DevDatabase
from headrace.runtime.dev.reloading import Reloading
from headrace.runtime.dev.saved import changed, stamps
from headrace.runtime.dev.taken import LineDiffers, Taken
from headrace.runtime.importing import import_file
from headrace.runtime.operations import Operations, open_operations, who_asks
from headrace.settings import Settings
from headrace.store.events import PostgresEvents
from headrace.store.migrate import migrate

LOOK_SECONDS = 0.3
STATUS_SECONDS = 1.0

Show = Callable[[Operations], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is told: sentences, troubles, and a chance to look at the status now and then."""

    tell: Callable[[str], None]
    warn: Callable[[str], None]
    show: Show


class Course:
    """One run of `headrace dev`; ``settings`` name the app and the database, ``events`` a file to append from.

    ``database`` is our own, None where another one was named.
    """

    def __init__(
        self,
        settings: Settings,
        project: Path,
        events: Path | None,
        listener: Listener,
        database: DevDatabase | None = None,
    ) -> None:
        self._settings = settings
        self._project = project
        self._events = events
        self._database = database
        self._kept = None if database is None else database.kept
        self._taken = None if events is None else Taken(events, self._kept)
        self._differs: int | None = None
        self._to = listener
        self._worker = Reloading(settings.required_app(), _environment(settings))

    async def run(self) -> None:
        """Run until this is cancelled; no process is left then.

        Raises:
            Unavailable: the database cannot be reached at the start.
            HeadraceError: somebody else has stopped the database of our own.

        """
        await migrate(self._settings.required_dsn(), self._settings.schema_name)
        async with open_operations(self._settings) as operations, self._ending():
            seen = self._look()
            await self._append(operations)
            await self._renew(operations)
            async with self._showing(operations):
                while True:
                    await asyncio.sleep(LOOK_SECONDS)
                    self._notice_stopped_database()
                    self._notice_end()
                    found = await asyncio.to_thread(self._look)
                    if saved := changed(seen, found):
                        seen = await self._settled(found)
                        await self._take_up(operations, saved)

    def _look(self) -> dict[Path, tuple[int, int]]:
        return dict(stamps(self._project, [] if self._events is None else [self._events]))

    async def _settled(self, found: dict[Path, tuple[int, int]]) -> dict[Path, tuple[int, int]]:
        """Return what is there when two looks see the same: an editor saves many files one by one."""
        while True:
            await asyncio.sleep(LOOK_SECONDS / 2)
            again = await asyncio.to_thread(self._look)
            if again == found:
                return again
            found = again

    async def _take_up(self, operations: Operations, saved: list[Path]) -> None:
        if self._events in saved:
            await self._append(operations)
        code = [path for path in saved if path != self._events]
        if code:
            more = f" and {len(code) - 1} more" if len(code) > 1 else ""
            self._to.tell(f"{code[0].relative_to(self._project)}{more} saved")
            await self._renew(operations)

    async def _renew(self, operations: Operations) -> None:
        """Put the code as it is now to work, if it loads; keys that failed under the old one are tried at once."""
        successor = await self._worker.load()
        if successor is None:
            goes_on = "the worker goes on with the code of before" if self._worker.works else "no worker runs"
            self._to.warn(f"the code does not load: {goes_on} until the next save")
            return
        await self._worker.retire()
        # Now, so that no try of the old code is left to spend what the new one is given.
        with suppress(HeadraceError):
            await operations.failures.resume(None, None, who_asks(), "the code was saved")
        await self._worker.put_to_work(successor)
        self._to.tell("the worker has the code as it is now")

    def _notice_stopped_database(self) -> None:
        """Give up when the database will not come back: nobody but us starts it."""
        if self._database is not None and not self._database.is_up():
            self._worker.kill()  # so that it has nothing to say of it either
            raise HeadraceError("the database was stopped from outside: start `headrace dev` again")

    def _notice_end(self) -> None:
        code = self._worker.ended()
        if code is not None:
            self._to.warn(f"the worker has ended with exit code {code}: it is started again at the next save")

    async def _append(self, operations: Operations) -> None:
        """Append what the file has and the log has not; a bad line is told, and waits for the next save."""
        if self._events is None or self._taken is None:
            return
        differs = None
        try:
            added, known = await self._append_from(self._events, self._taken, operations)
        except OSError as error:
            self._to.warn(f"{self._events} cannot be read: {error.strerror}")
        except LineDiffers as error:
            differs = error.number
            if differs != self._differs:
                self._to.warn(self._how_to_go_on(self._events, differs))
        except HeadraceError as error:
            self._to.warn(f"{self._events}: {error}")
        else:
            if added:
                self._to.tell(f"{self._events.name}: {added} appended, {known} were there")
        self._differs = differs

    async def _append_from(self, path: Path, taken: Taken, operations: Operations) -> tuple[int, int]:
        """Append what is new and remember what is in the log now; return how many were added, how many were there."""
        with path.open("rb") as file:
            lines = taken.reading(file)
            try:
                events = await PostgresEvents.open(operations.database)
                done = await import_file(lines, events, lambda _: taken.note(lines))
            finally:
                taken.keep()
        return done.added, done.known

    def _how_to_go_on(self, path: Path, number: int) -> str:
        afresh = "" if self._kept is None else ", or start afresh with --fresh"
        return (
            f"line {number} of {path.name} differs from what is in the log, so nothing is appended; events cannot be "
            f"changed: put the line back and add new lines{afresh}"
        )

    @asynccontextmanager
    async def _showing(self, operations: Operations) -> AsyncIterator[None]:
        async def keep_showing() -> None:
            while True:
                with suppress(HeadraceError):
                    await self._to.show(operations)
                await asyncio.sleep(STATUS_SECONDS)

        task = asyncio.create_task(keep_showing(), name="status")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @asynccontextmanager
    async def _ending(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            try:
                await self._worker.end()
            finally:
                self._worker.kill()


def _environment(settings: Settings) -> dict[str, str]:
    """Return the environment of the worker: ours, with the database of this run and a log for people."""
    own = {"HEADRACE_METRICS_PORT": "0", "HEADRACE_LOG_FORMAT": "console", "HEADRACE_LOG_LEVEL": "warning"}
    fixed = {"HEADRACE_DSN": settings.required_dsn(), "HEADRACE_SCHEMA": settings.schema_name}
    return own | dict(os.environ) | fixed
