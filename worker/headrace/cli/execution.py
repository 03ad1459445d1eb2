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


def run(work: Coroutine[Any, Any, ExitCode | None], *, blocking: bool = False) -> ExitCode:
    """Run a command's coroutine to its end and return its exit code; None is DONE.

    SIGINT and SIGTERM cancel it: what it holds open is closed, and the code says which signal it was. A command that
    blocks the loop (reading a pipe) is ``blocking``: there the signal raises Stopped, as a second one does anywhere.
    """
    try:
        return asyncio.run(_stoppable(work, blocking))
    except Stopped as stopped:
        return stopped.code


async def _stoppable(work: Coroutine[Any, Any, ExitCode | None], blocking: bool) -> ExitCode:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    asked: list[ExitCode] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        code = ExitCode(128 + number)
        asked.append(code)
        if blocking or len(asked) > 1 or task is None:
            raise Stopped(code)
        loop.call_soon_threadsafe(task.cancel)

    # Inside the loop: asyncio has set up its own handler of SIGINT before.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        return await work or ExitCode.DONE
    except (Stopped, asyncio.CancelledError):
        if not asked:
            raise
        return asked[0]
