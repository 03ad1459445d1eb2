"""Worker processes as the measuring process sees them: what they are told, what they say, how they are stopped."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

READY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker process shall do; it stops by itself after so many events, if any are given."""

    dsn: str
    app: str
    lanes: int = 1
    route_batch: int = 5000
    stop_after: int = 0
    profile: str = ""


@dataclass(slots=True)
class Notes:
    """What a worker process noted: monotonic times in seconds, each with what happened.

    Statements and processor time are those between ``started`` and the last flush. ``work``, ``clock`` and ``rest`` are
    statements by kind; ``horizon_reads`` are those until the last event was routed.
    """

    started: float = 0.0
    ended: float = 0.0
    cpu_seconds: float = 0.0
    resident_bytes: int = 0
    claims: list[tuple[float, int, int]] = field(default_factory=list)
    flushes: list[tuple[float, int, int]] = field(default_factory=list)
    routed: list[tuple[float, int]] = field(default_factory=list)
    work: dict[str, int] = field(default_factory=dict)
    clock: dict[str, int] = field(default_factory=dict)
    rest: dict[str, int] = field(default_factory=dict)
    horizon_reads: int = 0
    trouble: list[str] = field(default_factory=list)
    visible: list[tuple[int, float]] = field(default_factory=list)

    @property
    def visible_at(self) -> dict[int, float]:
        """When the flush of each position was heard of; only the app `noted` knows."""
        return dict(self.visible)

    @property
    def events(self) -> int:
        """How many events were flushed."""
        return sum(events for _, events, _ in self.flushes)


class WorkerProcess:
    """A running worker."""

    def __init__(self, popen: "subprocess.Popen[str]") -> None:
        self._popen = popen

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    def wait_ready(self) -> None:
        """Wait until the engine serves."""
        self._read("ready")

    def finish(self) -> Notes:
        """Wait for its end, which its order brings about, and return its notes."""
        found = self._read("notes")
        return Notes(**found)

    def freeze(self) -> None:
        """Stop it where it stands."""
        self._popen.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._popen.send_signal(signal.SIGCONT)

    def stop(self) -> Notes:
        """Let it drain and return its notes."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        return self.finish()

    def end(self) -> None:
        """Kill it if it still runs."""
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()

    def _read(self, wanted: str) -> Any:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            said = json.loads(line)
            if wanted in said:
                return said[wanted]
        raise RuntimeError(f"a worker process has ended with {self._popen.wait()} before it said {wanted!r}")


@contextmanager
def workers(*orders: Order, variables: Mapping[str, str] | None = None) -> Iterator[list[WorkerProcess]]:
    """Start worker processes and yield them; none of them outlives the block."""
    running: list[WorkerProcess] = []
    try:
        running.extend(_start(order, variables or {}) for order in orders)
        yield running
    finally:
        for worker in running:
            worker.end()


def _start(order: Order, variables: Mapping[str, str]) -> WorkerProcess:
    popen = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.engine_process", json.dumps(asdict(order))],
        cwd=Path(__file__).parent.parent,
        env=os.environ | {"PYTHONUNBUFFERED": "1"} | dict(variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return WorkerProcess(popen)
