"""The worker processes of the demonstration: started, frozen, killed, drained, and ended whatever happens.

They are processes of their own, started as a person would start them, in a session of their own so that Ctrl-C reaches
the demonstration alone, which ends them; when it is killed, its guard does.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.domain.errors import HeadraceError
from headrace.embedded.processes import Guard
from headrace.runtime.demo.figures import Condition, WorkerFigures
from headrace.runtime.demo.plot import FOLDER, RELEASE

LEASE_SECONDS = 4
"""Shorter than in production: nobody wants to look at a dead worker for long."""
STOP_SECONDS = 15.0
SHOWN_OF_LOG = 3000


@dataclass(slots=True)
class Member:
    """One worker process."""

    number: int
    release: int
    process: "subprocess.Popen[bytes]"
    log: Path
    condition: Condition = Condition.STARTING

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid


class Crew:
    """All worker processes, by the order of their start."""

    def __init__(self, guard: Guard, dsn: str, folder: Path, app: str) -> None:
        """Take who ends them in the worst case, the database, a folder for notes and logs, and the application."""
        self._guard = guard
        self._dsn = dsn
        self._folder = folder
        self._app = app
        self.members: list[Member] = []

    @property
    def at_work(self) -> list[Member]:
        """Those that work, or will."""
        return [member for member in self.members if member.condition.is_there]

    @property
    def starting(self) -> list[Member]:
        """Those that nobody has heard of yet."""
        return [member for member in self.members if member.condition is Condition.STARTING]

    def start(self, release: int) -> Member:
        """Start one more worker, of one release of the subscribers."""
        number = len(self.members) + 1
        log = self._folder / f"worker-{number}.log"
        own = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        told = {
            "HEADRACE_DSN": self._dsn,
            "HEADRACE_LEASE_SECONDS": str(LEASE_SECONDS),
            FOLDER: str(self._folder),
            RELEASE: str(release),
        }
        command = (sys.executable, "-m", "headrace", "worker", self._app, "--metrics-port", "0")
        member = Member(number, release, self._guard.launch("group", command, log, env=own | told), log)
        self.members.append(member)
        return member

    def freeze(self, member: Member) -> None:
        """Stop a worker in the midst of what it does."""
        member.process.send_signal(signal.SIGSTOP)
        member.condition = Condition.FROZEN

    def thaw(self, member: Member) -> None:
        """Let a frozen worker go on."""
        member.process.send_signal(signal.SIGCONT)
        member.condition = Condition.WORKING

    def kill(self, member: Member) -> None:
        """End a worker as a crash would, with what it holds."""
        member.process.kill()
        member.process.wait(STOP_SECONDS)
        self._guard.forget(member.pid)
        member.condition = Condition.KILLED

    def drain(self, member: Member) -> None:
        """Ask a worker to finish what it holds and to end; `check` notices its end."""
        member.process.terminate()
        member.condition = Condition.DRAINING

    def check(self) -> None:
        """Notice who has ended.

        Raises:
            HeadraceError: a worker ended that should not have, or not well; the message has the end of its log.

        """
        for member in self.members:
            if member.condition in (Condition.ENDED, Condition.KILLED) or member.process.poll() is None:
                continue
            self._guard.forget(member.pid)
            if member.condition is not Condition.DRAINING or member.process.returncode != 0:
                said = member.log.read_text("utf-8", "replace")[-SHOWN_OF_LOG:] if member.log.exists() else ""
                raise HeadraceError(f"worker {member.number} ended with exit code {member.process.returncode}:\n{said}")
            member.condition = Condition.ENDED

    def figures(self, leases: Mapping[str, Mapping[str, Any]], beats: Mapping[str, float]) -> tuple[WorkerFigures, ...]:
        """Return the workers with what they hold; both arguments by process id, as workers end their names with it."""
        return tuple(_figures(member, leases, beats) for member in self.members)

    def end(self) -> None:
        """End all that still run, now."""
        running = [member for member in self.members if member.process.poll() is None]
        for member in running:
            member.process.kill()
        for member in running:
            member.process.wait(STOP_SECONDS)
            self._guard.forget(member.pid)


def _figures(member: Member, leases: Mapping[str, Mapping[str, Any]], beats: Mapping[str, float]) -> WorkerFigures:
    if member.condition is Condition.STARTING and str(member.pid) in beats:
        member.condition = Condition.WORKING
    figures = WorkerFigures(member.number, member.pid, member.release, member.condition)
    held = leases.get(str(member.pid))
    return figures if held is None else replace(figures, **held)
