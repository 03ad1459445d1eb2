"""How the command line ends: one exit code, one message, never a traceback unless asked for.

Exit codes are published: scripts and jobs rely on them. Help and mistakes in a call end here too, so nothing is loaded
that only work needs.
"""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import NoReturn

from headrace.cli.output import complain
from headrace.domain.errors import DatabaseFull, HeadraceError, NotFinished, Unavailable, UsageError
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
    _open_what_is_closed()
    try:
        code = ExitCode(int(command() or 0))  # type: ignore[call-overload]
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):
            # Those who print for us leave in their own way when nobody reads.
            _leave(_hush())
        _leave(leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None))
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        _leave(_hush())
    except HeadraceError as error:
        code = exit_code_of(error)
        _report(f"{error}{_advice(error)}", debug)
    except OSError as error:
        code = ExitCode.ERRORS
        _report(_about(error), debug)
    except Exception as error:  # noqa: BLE001 - a person gets a sentence, whatever went wrong
        code = ExitCode.ERRORS
        _report(_unexpected(error), debug)
    _leave(code)


def _advice(error: HeadraceError) -> str:
    # The store cannot know where the DSN came from; a person at a prompt wants to.
    if isinstance(error, Unavailable) and not isinstance(error, DatabaseFull):
        return "; check HEADRACE_DSN or --dsn, and that the server runs"
    return ""


def _unexpected(error: Exception) -> str:
    return f"unexpected {type(error).__name__}: {error} (add --debug to see where)"


def _about(error: OSError) -> str:
    if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
        return _unexpected(error)
    where = f"{error.filename} cannot be written" if error.filename else "the output cannot be written"
    return f"{where}: {os.strerror(error.errno)}; make room on that disk, or write to another one, and run it again"


def _report(message: str, debug: bool) -> None:
    with suppress(OSError):
        if debug:
            sys.stderr.write(redacted(traceback.format_exc()))
        complain(redacted(message))


def _leave(code: int) -> NoReturn:
    """End the process; output that nobody reads any more is no reason for noise, output that is lost is."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = code or _hush()
    except OSError as error:
        code = code or ExitCode.ERRORS
        _hush()
        _report(_about(error), debug=False)
    sys.exit(code)


def _hush() -> int:
    """Send what is still buffered nowhere, and return what a shell expects of a closed pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(nowhere, sys.stderr.fileno())
    return 128 + signal.SIGPIPE


def _open_what_is_closed() -> None:
    """Stand in for standard streams that the caller has closed, as daemons do.

    Nothing else, a connection or a file, may get one of their numbers: it would be written to in their place.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8"))
