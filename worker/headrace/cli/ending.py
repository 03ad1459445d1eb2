"""How the command line ends: one exit code, one message, never a traceback unless asked for.

Exit codes are published: scripts and jobs rely on them. Help and mistakes in a call end here too, so nothing is loaded
that only work needs.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import NoReturn

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
