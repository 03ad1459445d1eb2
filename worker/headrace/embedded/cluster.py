"""One throw-away PostgreSQL cluster, from initdb to the removal of its folder.

It listens on 127.0.0.1 only, on a port below those that the system hands out to outgoing connections: while a server is
down, a client that keeps dialling such a port can end up connected to itself and hold the port against the restart.
Anybody on the machine who can reach that port gets in, by `trust`; never put data that matters in here.
"""

import atexit
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from headrace.domain.errors import Unavailable
from headrace.embedded.account import Account, find_account, make_folder, reachable_programs
from headrace.embedded.processes import Guard, kill_tree, wait_until
from headrace.embedded.programs import Programs

StopMode = Literal["smart", "fast", "immediate"]

SUPERUSER = "postgres"
HOST = "127.0.0.1"
PORTS = range(15_000, 32_000)
PORT_TRIES = 10
START_SECONDS = 120.0
STOP_SECONDS = 60.0
LONGEST_SOCKET_PATH = 100
STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
DEFAULTS = {
    "cluster_name": "headrace",
    "fsync": "off",
    "listen_addresses": HOST,
    "log_timezone": "UTC",
    "max_connections": "200",
    "max_prepared_transactions": "20",
    "timezone": "UTC",
}


class Cluster:
    """A PostgreSQL server of our own; a context manager that starts it and leaves nothing behind.

    Without a folder the data lives in a new temporary one, which is removed at the end. A given folder is kept, and
    what is in it is used again. `settings` are PostgreSQL's own, by name, and override the defaults (`fsync` is off).
    `first_port` is tried before any other, if nobody listens there.
    """

    def __init__(
        self,
        programs: Programs,
        folder: Path | None = None,
        settings: Mapping[str, str] | None = None,
        first_port: int | None = None,
    ) -> None:
        self.port = 0
        self._first_port = first_port
        self._given_programs = programs
        self._given_folder = folder
        self._settings = DEFAULTS | dict(settings or {})
        self._account: Account | None = None
        self._folder: Path | None = None
        self._programs = programs
        self._guard: Guard | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._was_killed = False
        self._owner = os.getpid()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def major(self) -> int:
        """The major version of the server."""
        return self._programs.major

    @property
    def folder(self) -> Path:
        """The folder that holds data, log and socket; only while the cluster is in use."""
        if self._folder is None:
            message = "The cluster has no folder: start() it first."
            raise Unavailable(message)
        return self._folder

    @property
    def pid(self) -> int | None:
        """The process id of the server, or None while it is down."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def dsn(self, database: str = "postgres", user: str = SUPERUSER) -> str:
        """Return the connection URL of a database, by TCP; it stays the same through restarts."""
        return f"postgresql://{user}@{HOST}:{self.port}/{database}"

    def log(self) -> str:
        """Return what the server has written to its log so far."""
        with suppress(FileNotFoundError):
            return (self.folder / "log").read_text("utf-8", "replace")
        return ""

    def start(self) -> None:
        """Start the server and return when it takes connections; nothing happens if it runs already.

        Raises Unavailable with the end of the server's log if it does not come up.
        """
        if self.pid is not None:
            return
        self._prepare()
        fixed = "port" in self._settings or self.port != 0
        said = ""
        for _ in range(1 if fixed else PORT_TRIES):
            self.port = int(self._settings.get("port", self.port if fixed else self._choose_port()))
            since = len(self.log())
            if self._launch():
                self._was_killed = False
                return
            said = self.log()[since:]
            if fixed or "Address already in use" not in said:
                break
        if not fixed:
            self.port = 0
        message = f"The embedded PostgreSQL {self.major} did not start:\n{said[-2000:]}"
        raise Unavailable(message)

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and return when it has ended; nothing happens if it is down already."""
        process = self._process
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(STOP_SIGNALS[mode])
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            kill_tree(process)
            self._was_killed = True
        self._forget()

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop the server and start it again on the same port."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """Kill the server and all its processes with SIGKILL, as a crash of the machine would."""
        if self._process is not None:
            kill_tree(self._process)
            self._was_killed = True
            self._forget()

    def close(self) -> None:
        """Stop the server and remove what it left; safe to call twice, and called at the end of the process."""
        if self._owner != os.getpid():  # a forked child does not own its parent's server
            return
        atexit.unregister(self.close)
        if self._was_killed:
            # Only a start clears the shared memory that a killed server leaves behind.
            with suppress(Unavailable):
                self.start()
        self.stop("fast" if self._given_folder else "immediate")
        if self._guard is not None:
            self._guard.release()
            self._guard = None
        if self._folder is not None and self._given_folder is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None
        self.port = 0

    def create_database(self, name: str, template: str | None = None) -> None:
        """Create a database, empty or as a copy of a template that nobody is connected to.

        Raises Unavailable with PostgreSQL's message if that fails.
        """
        options = ["--template", template] if template else []
        self._run("createdb", *self._connection(), *options, "--", name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it is there, and end its connections.

        Raises Unavailable with PostgreSQL's message if that fails.
        """
        self._run("dropdb", *self._connection(), "--force", "--if-exists", "--", name)

    def _choose_port(self) -> int:
        first, self._first_port = self._first_port, None
        return first if first is not None and _is_free(first) else _free_port()

    def _prepare(self) -> None:
        """Make folder, guard and data, once."""
        if self._folder is not None:
            return
        account = find_account()
        self._account, self._guard = account, Guard()
        atexit.register(self.close)
        try:
            folder = self._folder = self._given_folder or make_folder(account, self._guard)
            if self._given_folder is not None and not folder.exists():
                folder.mkdir(mode=0o700, parents=True)
                account.own(folder)
            self._guard.expect_pid_file(folder / "data" / "postmaster.pid")
            self._programs = reachable_programs(self._given_programs, account, folder)
            if not (folder / "data" / "PG_VERSION").exists():
                self._make_data()
            self._write_settings()
        except BaseException:
            self.close()
            raise

    def _make_data(self) -> None:
        options = ["--pgdata", str(self.folder / "data"), "--username", SUPERUSER, "--auth", "trust", "--no-sync"]
        try:
            self._initdb(*options, "--encoding", "UTF8", "--locale", "C.UTF-8")
        except Unavailable as error:
            # Not every C library has that locale; without it upper and lower case know ASCII only.
            if "locale" not in str(error):
                raise
            shutil.rmtree(self.folder / "data", ignore_errors=True)
            self._initdb(*options, "--encoding", "UTF8", "--locale", "C")

    def _initdb(self, *options: str) -> None:
        """Run initdb so that it is ended, with what it has started, when we are."""
        if self._guard is None:
            return
        log = self.folder / "initdb.log"
        process = self._guard.launch("maker", [self._programs.path("initdb"), *options], log, **self._surroundings())
        try:
            failed = process.wait() != 0
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
            self._guard.forget(process.pid)
        said = log.read_text("utf-8", "replace") if log.exists() else ""
        log.unlink(missing_ok=True)
        if failed:
            raise Unavailable(f"initdb failed: {said.strip()}")

    def _write_settings(self) -> None:
        sockets = self.folder / "socket"
        sockets.mkdir(mode=0o700, exist_ok=True)
        self._owned(sockets)
        fits = len(str(sockets)) + len("/.s.PGSQL.65535.lock") <= LONGEST_SOCKET_PATH
        settings = {"unix_socket_directories": str(sockets) if fits else ""} | self._settings
        # Torn pages matter exactly where flushing does.
        settings.setdefault("full_page_writes", settings["fsync"])
        lines = [f"{name} = {_quoted(value)}\n" for name, value in sorted(settings.items()) if name != "port"]
        path = self.folder / "data" / "headrace.conf"
        path.write_text("".join(lines), "utf-8")
        self._owned(path)

    def _launch(self) -> bool:
        """Start the server's process and return whether it became ready; if not, it has ended."""
        data = self.folder / "data"
        command = (self._programs.path("postgres"), "-D", str(data), "-p", str(self.port),
                   "-c", f"config_file={data / 'headrace.conf'}")  # fmt: skip
        if self._guard is None:
            return False
        process = self._guard.launch("server", command, self.folder / "log", **self._surroundings())
        self._process = process
        wait_until(lambda: process.poll() is not None or self._is_ready(process.pid), START_SECONDS)
        if process.poll() is None and self._is_ready(process.pid):
            return True
        kill_tree(process)
        self._forget()
        return False

    def _is_ready(self, pid: int) -> bool:
        """Read the state that the server itself writes into its lock file: pid first, state on line eight."""
        try:
            lines = (self.folder / "data" / "postmaster.pid").read_text("utf-8").splitlines()
        except OSError:
            return False
        return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"  # noqa: PLR2004

    def _forget(self) -> None:
        if self._guard is not None and self._process is not None:
            self._guard.forget(self._process.pid)
        self._process = None

    def _connection(self) -> list[str]:
        return ["--host", HOST, "--port", str(self.port), "--username", SUPERUSER, "--no-password"]

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs.path(program), *arguments],
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, start_new_session=True,
            **self._surroundings(),
        )  # fmt: skip
        if done.returncode != 0:
            message = f"{program} failed: {done.stderr.strip() or done.stdout.strip()}"
            raise Unavailable(message)

    def _surroundings(self) -> dict[str, Any]:
        """Return what every program runs in: the account, a folder it may enter, and none of our PG* variables."""
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", "HOME": str(self.folder)}
        account = {} if self._account is None else self._account.popen_arguments()
        return {"cwd": self.folder, "env": environment, **account}

    def _owned(self, path: Path) -> None:
        if self._account is not None:
            self._account.own(path)


def last_port(folder: Path) -> int | None:
    """Return the port on which the cluster of a kept folder ran last; None where that is not to be seen."""
    with suppress(OSError):
        # PostgreSQL writes its arguments there at each start, and leaves them.
        found = re.search(r'"-p" "(\d+)"', (folder / "data" / "postmaster.opts").read_text("utf-8", "replace"))
        if found and int(found[1]) in PORTS:
            return int(found[1])
    return None


def _is_free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        # As the server does: connections of before that linger do not count, a listener does.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        return True
    return False


def _free_port() -> int:
    """Return a port that nobody listens on now; the caller tries another when it was taken meanwhile."""
    for _ in range(200):
        port = secrets.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    message = f"No free port between {PORTS.start} and {PORTS.stop} on {HOST}."
    raise Unavailable(message)


def _quoted(value: str) -> str:
    """Return a value in the form of PostgreSQL's configuration file."""
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
