"""A real PgBouncer in transaction mode before a test's cluster, with as few server connections as it is told.

It runs as the account that PostgreSQL's programs run as, since it refuses to be root, and its folder goes with it.
"""

import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from headrace.embedded.account import Account
from support.databases import Database
from support.folders import shared_folder
from support.waiting import wait_until

HOST = "127.0.0.1"
PORTS = range(15_000, 32_000)
PLACES = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
CONFIGURATION = """\
[databases]
* = host={host} port={server} pool_size={size}
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
logfile = {folder}/log
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
max_db_connections = {size}
max_client_conn = 200
{more}
"""


@dataclass(slots=True)
class Pooler:
    """A PgBouncer: started, killed, started again on the same port."""

    port: int
    folder: Path
    program: str
    account: Account
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start it and return when it listens."""
        process = self.process = subprocess.Popen(
            [self.program, str(self.folder / "ini")],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder,
            **self.account.popen_arguments(),
        )  # fmt: skip
        wait_until(lambda: _answers(self.port) or process.poll() is not None, 20.0, "PgBouncer listens")
        assert process.poll() is None, self.log()

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def dsn(self, direct: str) -> str:
        """Return the connection URL through the pooler for one that leads to the server itself."""
        parts = urlsplit(direct)
        return urlunsplit(parts._replace(netloc=f"{parts.username}@{HOST}:{self.port}"))

    def log(self) -> str:
        """Return what it has logged so far."""
        with suppress(FileNotFoundError):
            return (self.folder / "log").read_text("utf-8", "replace")
        return ""


def pgbouncer_or_skip() -> str:
    """Return the program, or skip the test with the reason and the fix."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path=PLACES)
    if program is None:
        pytest.skip("PgBouncer was not found: install it (Debian: apt-get install pgbouncer)")
    return program


@contextmanager
def pooled(
    database: Database, *, size: int = 2, users: Sequence[str] = ("postgres",), more: Sequence[str] = ()
) -> Iterator[Pooler]:
    """Yield a PgBouncer in transaction mode with `size` server connections; `more` are lines of its configuration."""
    program = pgbouncer_or_skip()
    with shared_folder() as (folder, account):
        port = _free_port()
        (folder / "users").write_text("".join(f'"{user}" ""\n' for user in users))
        (folder / "ini").write_text(
            CONFIGURATION.format(
                host=HOST, port=port, server=database.cluster.port, size=size, folder=folder, more="\n".join(more)
            )
        )
        account.own(folder)
        pooler = Pooler(port, folder, program, account)
        try:
            pooler.start()
            yield pooler
        finally:
            pooler.kill()


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False


def _free_port() -> int:
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
