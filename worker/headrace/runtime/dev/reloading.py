"""One worker process at a time, of the code as it was saved last.

A new process loads the code while the old one still works. If it loads, the old one drains and ends, and the new one
goes on where it stopped; if it does not, the old one stays.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from headrace.runtime.dev.child import GO, LOADED

CHILD = "headrace.runtime.dev.child"
DRAIN_SECONDS = 15.0
LAST_SECONDS = 5.0


@dataclass(slots=True)
class Successor:
    """A process that has loaded new code and waits for its turn."""

    process: Process

    async def go(self) -> None:
        """Let it work."""
        if self.process.stdin is not None:
            with suppress(ConnectionError):
                self.process.stdin.write(GO)
                await self.process.stdin.drain()


@dataclass(slots=True)
class Reloading:
    """The worker of one app: ``load``, ``retire`` and ``put_to_work`` at each save, ``end`` at the end."""

    reference: str
    environment: Mapping[str, str]
    _all: list[Process] = field(default_factory=list)
    _at_work: Process | None = None

    async def load(self) -> Successor | None:
        """Start a process with the code as it is now; None when the code does not load (it has said why)."""
        answer, theirs = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", CHILD, self.reference, str(theirs)),
                stdin=PIPE,
                env=dict(self.environment),
                pass_fds=(theirs,),
                # Ctrl-C is for the process that ends this one.
                start_new_session=True,
            )
            self._all.append(process)
        finally:
            os.close(theirs)
        if await _line(answer) == LOADED:
            return Successor(process)
        await process.wait()
        return None

    async def retire(self) -> None:
        """End the worker of before, after its drain."""
        await self._retire(self._at_work)
        self._at_work = None

    async def put_to_work(self, successor: Successor) -> None:
        """Let the one that has loaded the code work."""
        self._at_work = successor.process
        await successor.go()

    @property
    def works(self) -> bool:
        """Whether there is a worker, and it runs."""
        return self._at_work is not None and self._at_work.returncode is None

    def ended(self) -> int | None:
        """Return the exit code of the worker when it has ended by itself, None while it works; told once."""
        worker = self._at_work
        if worker is None or worker.returncode is None:
            return None
        self._at_work = None
        return worker.returncode

    async def end(self) -> None:
        """End all processes: asked first, killed when they do not listen."""
        await asyncio.gather(*(self._retire(process) for process in self._all))

    def kill(self) -> None:
        """End all processes at once."""
        for process in self._all:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()

    async def _retire(self, process: Process | None) -> None:
        if process is None or process.returncode is not None:
            return
        for number, seconds in ((signal.SIGTERM, DRAIN_SECONDS), (signal.SIGTERM, LAST_SECONDS), (signal.SIGKILL, 60)):
            with suppress(ProcessLookupError):
                process.send_signal(number)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), seconds)
                return


async def _line(pipe: int) -> bytes:
    """Return the one line that comes out of a pipe; empty when the other end is closed before."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", buffering=0)
    )
    try:
        return await reader.readline()
    finally:
        transport.close()
