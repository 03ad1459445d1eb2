"""The database of a project under development: a PostgreSQL that keeps its data in the project's folder.

It is not for data that matters: nobody is asked for a password, and nothing is flushed to the disk. It ends with the
process that runs it, whatever becomes of that.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.domain.errors import UsageError
from headrace.embedded.account import find_account
from headrace.embedded.cluster import Cluster
from headrace.embedded.processes import is_alive
from headrace.embedded.programs import Programs, find_programs

FOLDER = ".headrace"


@dataclass(frozen=True, slots=True)
class DevDatabase:
    """A running database. ``kept`` is where its data stays; None when it is gone at the end."""

    dsn: str
    major: int
    kept: Path | None


@contextmanager
def dev_database(project: Path, *, fresh: bool = False) -> Iterator[DevDatabase]:
    """Run the database of a project for the time of a block; ``fresh`` forgets what it holds.

    Raises:
        UsageError: there is no PostgreSQL, or another process runs this database; the message names the fix.

    """
    folder = project / FOLDER
    _refuse_second(folder)
    if fresh and folder.exists():
        shutil.rmtree(folder)
    kept = folder if _can_be_used(project) else None
    with Cluster(_programs(folder), folder=kept) as cluster:
        yield DevDatabase(cluster.dsn(), cluster.major, kept)


def _refuse_second(folder: Path) -> None:
    with suppress(OSError, ValueError, IndexError):
        pid = int((folder / "data" / "postmaster.pid").read_text("utf-8").splitlines()[0])
        if is_alive(pid):
            raise UsageError(
                f"the database in {folder} is in use, by process {pid}: another `headrace dev` runs here; end it, or "
                "give --dsn"
            )


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
