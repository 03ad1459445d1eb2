"""Process work that the standard library lacks: who descends from a process, and an end that nobody can forget.

Nothing here knows PostgreSQL beyond its signals. Processes are only ever ended by their id.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from headrace.embedded.account import Account

# Reads its orders from a pipe. When the pipe closes, because of `close()` or because the process that held it is gone
# in whatever way, the server still under watch is ended and the folder removed. A parent-death signal would not do:
# it fires when the *thread* that started the server ends, and only Linux has it.
GUARD = """
trap '' HUP INT TERM
pid=
while read -r word value; do
    case "$word" in watch) pid=$value ;; forget) pid= ;; esac
done
if [ -n "$pid" ] && kill -QUIT "$pid" 2>/dev/null; then
    tries=0
    while [ -e "$1" ] && [ "$tries" -lt 300 ]; do
        tries=$((tries + 1))
        sleep 0.1 2>/dev/null || sleep 1
    done
fi
if [ -n "$2" ]; then rm -rf -- "$2"; fi
"""


class Guard:
    """A tiny process that outlives ours just long enough to end a server and remove a folder."""

    def __init__(self, account: Account, *, pid_file: Path, remove: Path | None) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "headrace-guard", str(pid_file), str(remove or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C is for the process that we guard, not for the guard
            text=True,
            **account.popen_arguments(),
        )

    def watch(self, pid: int) -> None:
        """End this process when ours has ended."""
        self._say(f"watch {pid}")

    def forget(self) -> None:
        """There is nothing to end any more."""
        self._say("forget")

    def release(self, timeout: float = 60.0) -> None:
        """Let the guard do its last work now, and wait for that; `timeout` in seconds."""
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _say(self, line: str) -> None:
        # A guard that somebody killed costs the safety net, not the work.
        with suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()


def kill_tree(process: subprocess.Popen[bytes], timeout: float = 30.0) -> None:
    """Kill a process and its children with SIGKILL, and return when all are gone; `timeout` in seconds.

    The parent is stopped first, so that it neither starts new children nor sees the old ones die. Raises TimeoutError
    when the system does not let go of one of them in time.
    """
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGSTOP)
    children = children_of(process.pid)
    for pid in (process.pid, *children):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(timeout)
    if not wait_until(lambda: not any(is_alive(pid) for pid in children), timeout):
        raise TimeoutError(f"children of process {process.pid} are still there {timeout:g} s after their kill")


def children_of(parent: int) -> list[int]:
    """Return the ids of the direct children of a process."""
    return [pid for pid, of in _parents() if of == parent]


def is_alive(pid: int) -> bool:
    """Return whether a process still runs; one that has ended and waits to be collected does not."""
    stat = Path(f"/proc/{pid}/stat")
    with suppress(OSError):
        return _after_name(stat.read_text("utf-8", "replace"))[0] not in ("Z", "X")
    if Path("/proc/self/stat").exists():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def wait_until(condition: Callable[[], bool], timeout: float) -> bool:
    """Return whether the condition came true within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.01)
    return True


def _parents() -> Iterable[tuple[int, int]]:
    """Yield (process id, its parent's id) for all processes; slim images have no `ps`, other systems no /proc."""
    if Path("/proc/self/stat").exists():
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                yield int(stat.parent.name), int(_after_name(stat.read_text("utf-8", "replace"))[1])
        return
    listed = subprocess.run(["/bin/ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        pid, parent = line.split()
        yield int(pid), int(parent)


def _after_name(stat: str) -> list[str]:
    """Return the fields of a /proc stat line from the state on; the name before them may hold blanks and brackets."""
    return stat.rpartition(")")[2].split()
