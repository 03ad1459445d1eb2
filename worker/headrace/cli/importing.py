"""`headrace import`: JSON Lines from files or a pipe into the event store, with progress on a terminal."""

import asyncio
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, cast

import typer

from headrace.cli.ending import ExitCode
from headrace.cli.execution import Blocking, Stopped, run
from headrace.cli.options import DsnOption, OutputOption, SchemaOption, settings_with
from headrace.cli.output import OutputForm, count, duration, print_json, say, shown, warn
from headrace.cli.progress import bar, watched
from headrace.domain.errors import BadInput, HeadraceError
from headrace.runtime.importing import Imported, import_file
from headrace.runtime.json_lines import BadLine
from headrace.settings import Settings
from headrace.store.events import PostgresEvents
from headrace.store.migrate import require_schema
from headrace.store.pool import Database

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from rich.progress import Progress, TaskID

STDIN = "-"
LONGEST_NAME = 24
"""Of a file beside its bar: what follows, the time that is left above all, needs the rest of the line."""

Show = Callable[[Imported], None]


@dataclass(frozen=True, slots=True)
class Source:
    """One file of an import, under the name that messages show."""

    name: str
    file: IO[bytes]
    size: int | None

    def tell(self) -> int:
        """Return how many bytes were read of what lies on the disk."""
        try:
            return os.lseek(self.file.fileno(), 0, os.SEEK_CUR)
        except OSError:
            return 0


def import_command(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="JSON Lines, .gz too; - is standard input.")],
    dsn: DsnOption = None,
    schema: SchemaOption = None,
    output: OutputOption = OutputForm.TEXT,
) -> None:
    """Append events from JSON Lines: stream, type, data; optional recorded_at, tags, metadata, event_id.

    Safe to repeat: events of the same text, in the same place, are passed
    over. A line that is changed makes itself and all lines after it new.
    A bad line is named by its number, and nothing of its chunk of 1,000
    is stored; correct it and import again.
    """
    settings = settings_with(dsn=dsn, schema_name=schema)
    settings.required_dsn()
    blocking = Blocking()
    with ExitStack() as stack:
        sources = [stack.enter_context(_opened(name, blocking)) for name in files]
        raise typer.Exit(run(_import(settings, sources, output), blocking=blocking))


async def _import(settings: Settings, sources: list[Source], output: OutputForm) -> ExitCode:
    async with await Database.open(
        settings.required_dsn(),
        schema=settings.schema_name,
        max_size=1,
        pooler=settings.pooler,
        application_name="headrace import",
    ) as database:
        async with database.session() as session:
            await require_schema(session)
        events = await PostgresEvents.open(database)
        results = [(source, await _import_one(source, events, output)) for source in sources]
    if output is OutputForm.JSON:
        print_json([{"file": s.name, "events": i.events, "added": i.added, "known": i.known} for s, i in results])
    return ExitCode.DONE


async def _import_one(source: Source, events: PostgresEvents, output: OutputForm) -> Imported:
    started = time.monotonic()
    done = Imported()
    try:
        with _progress(source) as show:

            def note(now: Imported) -> None:
                nonlocal done
                done = now
                show(now)

            done = await import_file(source.file, events, note)
    except BadLine as error:
        raise BadInput(
            f"{source.name}: line {error.number}: {error.problem}\n"
            f"this import has appended {count(done.added, 'event') if done.added else 'nothing'}; "
            "correct the line and import again"
        ) from error
    except (Stopped, asyncio.CancelledError, HeadraceError):
        say(f"{source.name}: stopped after {count(done.events, 'event')}; run it again to go on", stderr=True)
        raise
    if output is OutputForm.TEXT:
        seconds = time.monotonic() - started
        rate = f", {done.events / seconds:,.0f} a second" if seconds > 1 else ""
        known = f", {done.known:,} were there already" if done.known else ""
        say(f"{source.name}: {count(done.added, 'event')} added{known} ({duration(seconds)}{rate})")
    return done


@contextmanager
def _opened(name: str, blocking: Blocking) -> Iterator[Source]:
    if name == STDIN:
        if sys.stdin.isatty():
            warn("standard input is this terminal: type one event a line, and Ctrl-D at the end")
        yield Source(
            "standard input",
            _buffered(cast("io.RawIOBase", cast("io.BufferedReader", sys.stdin.buffer).raw), blocking),
            None,
        )
        return
    try:
        file = Path(name).open("rb", buffering=0)  # noqa: SIM115 - entered below, outside this except
    except OSError as error:
        raise BadInput(f"{name}: {error.strerror or error}") from error
    with file:
        yield Source(name, _buffered(file, blocking), os.fstat(file.fileno()).st_size)


def _buffered(file: io.RawIOBase, blocking: Blocking) -> io.BufferedReader:
    return io.BufferedReader(_Reading(file, blocking), 1 << 18)


class _Reading(io.RawIOBase):
    """A file or a pipe, at which a signal may end the waiting."""

    def __init__(self, file: io.RawIOBase, blocking: Blocking) -> None:
        self._file = file
        self._blocking = blocking

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()

    def readinto(self, buffer: "WriteableBuffer", /) -> int | None:
        with self._blocking:
            return self._file.readinto(buffer)


@contextmanager
def _progress(source: Source) -> Iterator[Show]:
    """Yield a function that shows how far an import is; a bar on a terminal, nothing elsewhere."""
    out = watched()
    if out is None:
        yield lambda _: None
        return
    with bar(out) as progress:
        task = progress.add_task(shown(Path(source.name).name, LONGEST_NAME), total=source.size, events=0, rate=0)
        yield _shower(progress, task, source)


def _shower(progress: "Progress", task: "TaskID", source: Source) -> Show:
    started = time.monotonic()

    def show(done: Imported) -> None:
        rate = int(done.events / max(time.monotonic() - started, 0.001))
        progress.update(task, completed=source.tell(), events=done.events, rate=rate)

    return show
