"""A terminal that a command runs on: what a person would see of it, and the keys that a person would press."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from support.commands import command, environment
from support.fleet import TESTS

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@dataclass
class Terminal:
    """A command on a terminal of its own, as a person sees it."""

    process: "subprocess.Popen[bytes]"
    keyboard: int
    seen: str = ""
    before: list[object] = field(default_factory=list)

    def shows(self, text: str) -> bool:
        """Read what there is, and tell whether a text was shown since the last forgetting."""
        while select.select([self.keyboard], [], [], 0)[0]:
            try:
                self.seen += os.read(self.keyboard, 65536).decode("utf-8", "replace")
            except OSError:
                break
        return text in ESCAPE.sub("", self.seen)

    def type(self, keys: str) -> None:
        """Press keys, and forget what was shown."""
        self.seen = ""
        os.write(self.keyboard, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        """Make the terminal another size, as a window manager does."""
        self.seen = ""
        fcntl.ioctl(self.keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)


@contextmanager
def terminal(*arguments: str, dsn: str, rows: int = 24, columns: int = 80, **variables: str) -> Iterator[Terminal]:
    """Yield a command that runs on a terminal; killed at the end if it still runs."""
    keyboard, screen = pty.openpty()
    fcntl.ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    own = {
        name: value for name, value in environment(dsn).items() if name not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}
    }
    process = subprocess.Popen(
        command(*arguments),
        env=own | {"TERM": "xterm-256color"} | variables,
        stdin=screen,
        stdout=screen,
        stderr=screen,
        cwd=TESTS,
        start_new_session=True,
    )
    try:
        yield Terminal(process, keyboard, before=termios.tcgetattr(screen))
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(screen)
        os.close(keyboard)
