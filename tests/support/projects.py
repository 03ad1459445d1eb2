"""Projects made by `headrace new`, where PostgreSQL's account can enter, and `headrace dev` running on them."""

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from headrace.cli.new import make_project
from support.commands import command, environment
from support.waiting import NotSeenError, wait_until

SECONDS = 60.0


@contextmanager
def project(name: str = "shop") -> Iterator[Path]:
    """Yield the folder of a new project, removed at the end."""
    parent = Path(tempfile.mkdtemp(prefix="headrace-test-"))
    parent.chmod(0o755)
    try:
        make_project(name, parent)
        yield parent / name
    finally:
        shutil.rmtree(parent, ignore_errors=True)


def edit(path: Path, old: str, new: str) -> None:
    """Replace a piece of a file, and save it as editors do: another file takes its place."""
    text = path.read_text("utf-8")
    assert old in text
    beside = path.with_name(f"{path.name}~")
    beside.write_text(text.replace(old, new), "utf-8")
    beside.rename(path)


class Dev:
    """A running `headrace dev`, and what it has said so far."""

    def __init__(self, folder: Path, *options: str, variables: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._said = folder.parent / "said"
        with self._said.open("ab") as out:
            self.process = subprocess.Popen(
                command("dev", f"{folder.name}.read_models:app", *options),
                cwd=folder,
                env=environment(**(variables or {})),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        """Everything that was printed, the worker's own lines included."""
        return self._said.read_text("utf-8")

    @property
    def dsn(self) -> str:
        """The database, once it has been named."""
        return self.said.rpartition("HEADRACE_DSN=")[2].splitlines()[0]

    def wait_for(self, text: str, times: int = 1) -> None:
        """Return when something was said so many times."""

        def is_said() -> bool:
            assert self.process.poll() is None, self.said
            return self.said.count(text) >= times

        try:
            wait_until(is_said, SECONDS, f"{text!r} is said {times} times")
        except NotSeenError as error:
            raise NotSeenError(f"{error}; said was:\n{self.said}") from None

    def append(self, *lines: str) -> None:
        """Add lines to the project's events."""
        with (self.folder / "events.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    def processes(self) -> set[int]:
        """Return the workers and servers of this run: whoever else works in the project's folder."""
        found = set()
        for stat in Path("/proc").glob("[0-9]*/environ"):
            pid = int(stat.parent.name)
            try:
                works_here = (stat.parent / "cwd").readlink().is_relative_to(self.folder)
            except OSError:
                continue
            if works_here and pid != self.process.pid:
                found.add(pid)
        return found

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


@contextmanager
def developing(folder: Path, *options: str, variables: Mapping[str, str] | None = None) -> Iterator[Dev]:
    """Yield a running `headrace dev`, killed at the end if it still runs."""
    dev = Dev(folder, *options, variables=variables)
    try:
        yield dev
    finally:
        if dev.process.poll() is None:
            dev.end(signal.SIGKILL)
