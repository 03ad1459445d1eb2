"""The command line as a person runs it: a process of its own, its exit code, what it printed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)


def environment(dsn: str | None = None, /, **variables: str) -> dict[str, str]:
    """Return the environment of a command: the caller's without its HEADRACE_ variables, plus these."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    named = {f"HEADRACE_{name.upper()}": value for name, value in variables.items()}
    return own | ({"HEADRACE_DSN": dsn} if dsn else {}) | named


def headrace(
    *arguments: str,
    dsn: str | None = None,
    stdin: bytes = b"",
    cwd: Path | None = None,
    timeout: float = SECONDS,
    variables: Mapping[str, str] | None = None,
) -> Outcome:
    """Run `headrace` with these arguments to its end; `timeout` in seconds."""
    done = subprocess.run(
        command(*arguments),
        env=environment(dsn, **(variables or {})),
        input=stdin,
        cwd=cwd,
        capture_output=True,
        timeout=timeout,
        check=False,
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def command(*arguments: str) -> Sequence[str]:
    """Return the words that start `headrace` with this interpreter."""
    return (sys.executable, "-m", "headrace", *arguments)


@contextmanager
def started(
    *arguments: str, dsn: str | None = None, cwd: Path | None = None, variables: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """Yield a running `headrace`, killed at the end if it still runs."""
    process = subprocess.Popen(
        command(*arguments),
        env=environment(dsn, **(variables or {})),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()
