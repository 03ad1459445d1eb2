"""How a command's work runs: in one event loop, and stopped by a signal wherever it is."""

import asyncio
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any

from headrace.cli.ending import ExitCode


class Stopped(KeyboardInterrupt):
    """A signal asked this command to end at once, wherever it is."""

    def __init__(self, code: ExitCode) -> None:
        super().__init__(code)
        self.code = code


class Blocking:
    """The parts of a command that block the loop, reading a pipe: `with` this around them a signal raises Stopped.

    Nowhere else: an exception that comes out of nothing in the middle of the driver's work breaks the driver.
    """

    def __init__(self) -> None:
        self.inside = False
        self.asked: ExitCode | None = None

    def __enter__(self) -> None:
        # In this order: a signal from here on raises by itself, one from before has left its code.
        self.inside = True
        if self.asked is not None:
            self.inside = False
            raise Stopped(self.asked)

    def __exit__(self, *_: object) -> None:
        self.inside = False


def run(work: Coroutine[Any, Any, ExitCode | None], *, blocking: Blocking | None = None) -> ExitCode:
    """Run a command's coroutine to its end and return its exit code; None is DONE.

    SIGINT and SIGTERM cancel it: what it holds open is closed, and the code says which signal it was. Where it is
    ``blocking`` the signal raises Stopped, as a second one does anywhere.
    """
    try:
        return asyncio.run(_stoppable(work, blocking or Blocking()))
    except Stopped as stopped:
        return stopped.code


async def _stoppable(work: Coroutine[Any, Any, ExitCode | None], blocking: Blocking) -> ExitCode:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def stop(number: int, _frame: FrameType | None) -> None:
        again, blocking.asked = blocking.asked is not None, ExitCode(128 + number)
        if blocking.inside or again or task is None:
            raise Stopped(blocking.asked)
        loop.call_soon_threadsafe(task.cancel)

    # Inside the loop: asyncio has set up its own handler of SIGINT before.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        return await work or ExitCode.DONE
    except (Stopped, asyncio.CancelledError):
        if blocking.asked is None:
            raise
        return blocking.asked
