"""Process work that the standard library lacks: who descends from a process, and an end that nobody can forget.

Nothing here knows PostgreSQL beyond its signals. Processes are only ever ended by their id.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

# Reads its orders from a pipe. When the pipe closes, because of `release()` or because the process that held it is gone
# in whatever way, what is still under watch is ended and the folder removed. A parent-death signal would not do: it
# fires when the *thread* that started the child ends, and only Linux has it.
# The guard makes the folder itself: there is no moment at which the folder is there and the guard does not know it.
GUARD = """
trap '' HUP INT QUIT TERM
watched= folder= pid_file=$1
without() {
    left=
    for one in $watched; do case "$one" in *":$1") ;; *) left="$left $one" ;; esac; done
    watched=$left
}
wait_while() {
    tries=0
    while "$@" && [ "$tries" -lt 300 ]; do
        tries=$((tries + 1))
        sleep 0.1 2>/dev/null || sleep 1
    done
}
serves() { [ -e "$pid_file" ] && kill -0 "$1" 2>/dev/null; }
lives() { kill -0 "-$1" 2>/dev/null; }
remains() { rm -rf -- "$1" 2>/dev/null; [ -e "$1" ]; }
while read -r word value; do
    case "$word" in
    make) if mkdir -m 700 -- "$value" 2>/dev/null; then folder=$value; echo made; else echo no; fi ;;
    leave) folder= ;;
    pid-file) pid_file=$value ;;
    forget) without "$value" ;;
    *) watched="$watched $word:$value" ;;
    esac
done
for one in $watched; do
    case "$one" in
    server:*) kill -QUIT "${one#*:}" ;;
    maker:*) kill -TERM "${one#*:}" ;;
    *) kill -KILL "-${one#*:}" ;;
    esac 2>/dev/null
done
for one in $watched; do
    case "$one" in
    server:*) wait_while serves "${one#*:}" ;;
    *) wait_while lives "${one#*:}" ;;
    esac
done
if [ -n "$folder" ]; then wait_while remains "$folder"; fi
"""

# Runs in the child, between its birth and its program. Standard output is the pipe to the guard until then: when our
# process is killed right after the birth, the guard hears of the child before it sees the pipe close.
# The subshell: a guard that somebody killed costs the safety net, not the work.
LAUNCH = """
(echo "$0 $$")
log=$1
shift
exec "$@" >>"$log" 2>&1
"""

Care = Literal["server", "maker", "group"]
"""How a child is ended: PostgreSQL's immediate stop; asked to give up, then waited for; killed with its whole group."""


class Guard:
    """A tiny process that outlives ours just long enough to end what we started and remove a folder.

    ``pid_file``: a server is gone when this file is.
    """

    def __init__(self, pid_file: Path | None = None) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "headrace-guard", str(pid_file or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C is for the process that we guard, not for the guard
            text=True,
        )

    def make_folder(self, folder: Path) -> bool:
        """Make a folder, closed to others, that goes when we go; tells whether it could be made."""
        self._say(f"make {folder}")
        if self._process.stdout is None:
            return False
        return self._process.stdout.readline() == "made\n"

    def remove_folder(self, folder: Path) -> None:
        """Remove the folder now, empty as it is."""
        folder.rmdir()
        self._say("leave")

    def expect_pid_file(self, pid_file: Path) -> None:
        """Name the file that a server removes last."""
        self._say(f"pid-file {pid_file}")

    def launch(self, care: Care, command: Sequence[str], log: Path, **arguments: Any) -> "subprocess.Popen[bytes]":
        """Start a program in a session of its own that ends when we end; what it prints is added to ``log``.

        ``arguments`` are those of ``subprocess.Popen``.
        """
        return subprocess.Popen(
            ["/bin/sh", "-c", LAUNCH, care, str(log), *command],
            stdin=subprocess.DEVNULL,
            stdout=self._process.stdin,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **arguments,
        )

    def forget(self, pid: int) -> None:
        """Let go of a process that has ended, before its number is another's."""
        self._say(f"forget {pid}")

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
        if self._process.stdout is not None:
            self._process.stdout.close()

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
