"""Where the demonstration takes place, and its end: whatever happens, no process, folder or port is left.

A PostgreSQL of its own and a folder, each with a guard that outlives this process for a moment: a Ctrl-C, a SIGTERM and
a `kill -9` at any moment leave the same, nothing.
"""

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.domain.errors import UsageError
from headrace.embedded.cluster import Cluster
from headrace.embedded.processes import Guard
from headrace.embedded.programs import find_programs
from headrace.runtime.demo.crew import Crew
from headrace.runtime.demo.plot import MAILBOX, Notes, Plot, first_lines, plot_of_file, shop_plot
from headrace.runtime.demo.shop import shop_log
from headrace.runtime.json_lines import unpacked

SHOP_EVENTS = 100_000


@dataclass(frozen=True, slots=True)
class Script:
    """What to play, and how large: a file's log, or a made-up shop of so many events (all, or 100,000)."""

    events: int | None = None
    seed: int = 1
    workers: int = 2
    file: Path | None = None

    def plot(self) -> Plot:
        """Return the play.

        Raises:
            BadInput: the file cannot be read, or holds no event.

        """
        if self.file is None:
            return shop_plot(self.events or SHOP_EVENTS)
        return plot_of_file(self.file, self.events)


@dataclass(frozen=True, slots=True)
class Stage:
    """A database, a folder for what is written, and the workers on both."""

    dsn: str
    folder: Path
    plot: Plot
    crew: Crew

    @property
    def mailbox(self) -> Path:
        """Where the reactor's mails lie."""
        return self.folder / MAILBOX

    def prepare(self) -> None:
        """Write what workers are to know."""
        self.mailbox.mkdir()
        stream, version = self.plot.poison or ("", 0)
        Notes(self.plot.mailed, stream, version).write(self.folder)

    def log_of(self, script: Script) -> Path:
        """Return the file with the log; a made-up one, and a part of a long one, is written for it."""
        if script.file is not None and script.events is None:
            return script.file
        path = self.folder / "log.jsonl"
        with path.open("wb") as file:
            if script.file is None:
                file.writelines(shop_log(self.plot.events, script.seed))
            else:
                with script.file.open("rb") as given:
                    file.writelines(first_lines(unpacked(given), script.events))
        return path


@contextmanager
def stage(plot: Plot) -> Iterator[tuple[Cluster, Stage]]:
    """Yield a PostgreSQL of our own and the stage on it; afterwards nothing of both is left.

    Raises:
        UsageError: there is no PostgreSQL, or no folder; the message says what helps.

    """
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(find_programs("embedded")))
        yield cluster, stack.enter_context(stage_on(cluster.dsn(), plot))


@contextmanager
def stage_on(dsn: str, plot: Plot) -> Iterator[Stage]:
    """Yield the stage on a database; afterwards no worker and no folder is left.

    Raises:
        UsageError: no folder can be made.

    """
    guard = Guard()
    try:
        folder = Path(tempfile.gettempdir()) / f"headrace-demo-{secrets.token_hex(6)}"
        if not guard.make_folder(folder):
            raise UsageError(f"no folder can be made in {folder.parent}: set TMPDIR to one where it can")
        crew = Crew(guard, dsn, folder, plot.app)
        try:
            yield Stage(dsn, folder, plot, crew)
        finally:
            crew.end()
    finally:
        # It removes the folder, and kills what is left where our own end was cut short.
        guard.release()
