"""The database of a project under development: a PostgreSQL that keeps its data in the project's folder.

It is not for data that matters: nobody is asked for a password, and nothing is flushed to the disk. It ends with the
process that runs it, whatever becomes of that.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.domain.errors import UsageError
from headrace.embedded.account import find_account
from headrace.embedded.cluster import Cluster, last_port
from headrace.embedded.processes import is_alive
from headrace.embedded.programs import Programs, find_programs

FOLDER = ".headrace"
OWNER = "dev.pid"


@dataclass(frozen=True, slots=True)
class DevDatabase:
    """A running database. ``kept`` is where its data stays; None when it is gone at the end.

    ``is_up`` tells whether the server still runs: somebody else may have stopped it.
    """

    dsn: str
    major: int
    kept: Path | None
    is_up: Callable[[], bool]


@contextmanager
def dev_database(project: Path, *, fresh: bool = False) -> Iterator[DevDatabase]:
    """Run the database of a project for the time of a block, on the port it had before; ``fresh`` forgets the data.

    Raises:
        UsageError: there is no PostgreSQL, or another process runs this database; the message names the fix.

    """
    folder = project / FOLDER
    _refuse_second(folder)
    port = last_port(folder)
    if fresh and folder.exists():
        shutil.rmtree(folder)
    kept = folder if _can_be_used(project) else None
    with Cluster(_programs(folder), folder=kept, first_port=port) as cluster:
        if kept is not None:
            (kept / OWNER).write_text(str(os.getpid()), "utf-8")
        yield DevDatabase(cluster.dsn(), cluster.major, kept, lambda: cluster.pid is not None)


def _refuse_second(folder: Path) -> None:
    server = _pid_in(folder / "data" / "postmaster.pid")
    if server is None or not is_alive(server):
        return
    # Not the server's: who ends that leaves the other one without its database.
    owner = _pid_in(folder / OWNER)
    by = f" (process {owner})" if owner is not None and is_alive(owner) else ""
    raise UsageError(f"the database in {folder} is in use: another `headrace dev` runs here{by}; end it, or give --dsn")


def _pid_in(path: Path) -> int | None:
    """Return the process id on the first line of a file."""
    with suppress(OSError, ValueError, IndexError):
        return int(path.read_text("utf-8").splitlines()[0])
    return None


def _can_be_used(project: Path) -> bool:
    """Tell whether PostgreSQL's account can work below the project; root's home is closed to it, and is left so."""
    account = find_account()
    if not account.borrowed:
        return os.access(project, os.W_OK)
    return account.can_run("/bin/sh", "-c", 'test -x "$1"', "sh", str(project))


def _programs(folder: Path) -> Programs:
    """Return the programs that made the data, or any where there is none yet."""
    try:
        major = int((folder / "data" / "PG_VERSION").read_text("utf-8"))
    except (OSError, ValueError):
        major = None
    try:
        return find_programs("embedded", major)
    except UsageError as error:
        problem = str(error)
    with suppress(UsageError):
        return find_programs("system", major)
    if major is not None:
        problem += f" The data in {folder} is of that version: --fresh makes the database anew."
    raise UsageError(problem)
