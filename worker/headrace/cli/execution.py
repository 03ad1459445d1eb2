"""How a command runs and ends: one event loop, one exit code, never a traceback unless asked for.

Exit codes are published: scripts and jobs rely on them.
"""

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import IntEnum
from types import FrameType
from typing import Any, NoReturn

from headrace.cli.output import complain
from headrace.domain.errors import HeadraceError, NotFinished, Unavailable, UsageError
from headrace.telemetry.redaction import redacted


class ExitCode(IntEnum):
    """What a command ended with."""

    DONE = 0
    ERRORS = 1
    """Done, with errors in the result."""
    USAGE = 2
    UNREACHABLE = 3
    """The database cannot be reached."""
    NOT_FINISHED = 4
    """A limit or time-out was reached with work left."""
    INTERRUPTED = 130
    TERMINATED = 143


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


def exit_code_of(error: HeadraceError) -> ExitCode:
    """Return what an error means for scripts."""
    if isinstance(error, UsageError):
        return ExitCode.USAGE
    if isinstance(error, Unavailable):
        return ExitCode.UNREACHABLE
    if isinstance(error, NotFinished):
        return ExitCode.NOT_FINISHED
    return ExitCode.ERRORS


def guarded(command: Callable[[], object], *, debug: bool = False) -> NoReturn:
    """Call the command line and leave the process with the right code and at most one message."""
    code = ExitCode.DONE
    try:
        code = ExitCode(int(command() or 0))  # type: ignore[call-overload]
    except SystemExit as leaving:
        _leave(leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None))
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        _leave(_hush())
    except HeadraceError as error:
        code = exit_code_of(error)
        _report(f"{error}{_advice(error)}", debug)
    except Exception as error:  # noqa: BLE001 - a person gets a sentence, whatever went wrong
        code = ExitCode.ERRORS
        _report(f"unexpected {type(error).__name__}: {error} (add --debug to see where)", debug)
    _leave(code)


def _advice(error: HeadraceError) -> str:
    # The store cannot know where the DSN came from; a person at a prompt wants to.
    return "; check HEADRACE_DSN or --dsn, and that the server runs" if isinstance(error, Unavailable) else ""


def _report(message: str, debug: bool) -> None:
    with suppress(BrokenPipeError):
        if debug:
            sys.stderr.write(redacted(traceback.format_exc()))
        complain(redacted(message))


def _leave(code: int) -> NoReturn:
    """End the process; output that nobody reads any more is no reason for noise."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = code or _hush()
    sys.exit(code)


def _hush() -> int:
    """Send what is still buffered nowhere, and return what a shell expects of a closed pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    return 128 + signal.SIGPIPE
