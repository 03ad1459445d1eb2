"""The worker process of `headrace dev`: loads the app, says so, and works when it is told to.

So the worker before it goes on until the new code has been loaded, and code that does not load changes nothing. It is
spoken to through its standard input; when that closes, whoever started it is gone, and it ends.

Called by `reloading` as ``python -m headrace.runtime.dev.child MODULE:ATTRIBUTE FD``; settings come by the environment.
"""

import os
import signal
import sys
import threading
from typing import NoReturn

from headrace.domain.errors import HeadraceError, UsageError
from headrace.runtime.app import App
from headrace.runtime.worker import Order, run_worker
from headrace.settings import read_settings
from headrace.subscribers.loader import load_app
from headrace.telemetry.redaction import redacted

LOADED = b"loaded\n"
GO = b"go\n"
STDIN = 0
DRAIN_SECONDS = 5.0


def main(reference: str, answer: int) -> int:
    """Be the worker of an app; return the exit code."""
    os.set_inheritable(answer, False)
    try:
        app = load_app(reference)
        if not isinstance(app, App):
            raise UsageError(f"{reference} is an App of another module: make it of headrace.App")
        os.write(answer, LOADED)
        os.close(answer)
        if os.read(STDIN, len(GO)) != GO:
            return 0
        threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
        run_worker(read_settings(), app, Order())
    except HeadraceError as error:
        sys.stderr.write(f"error: {redacted(str(error))}\n")
        return 2
    return 0


def _end_with_parent() -> NoReturn:
    """Wait until the other end of standard input is closed, then ask for a drain, then insist."""
    # Not through sys.stdin: its lock, held here, would keep the interpreter from ending.
    while os.read(STDIN, 1):
        pass
    while True:
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(DRAIN_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
