"""Databases for tests: one cluster per PostgreSQL version and run, one migrated template in it, one clone per test.

A clone costs a tenth of a second and nobody shares it, so tests neither clean up after each other nor depend on order.
"""

import asyncio
import importlib
import itertools
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import asyncpg
import pytest

from headrace.domain.errors import UsageError
from headrace.embedded.cluster import Cluster
from headrace.embedded.programs import Kind, Programs, find_programs

TEMPLATE = "headrace_template"
VERSIONS: dict[str, Kind] = {"pg15": "system", "pg18": "embedded"}

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Database:
    """A database that belongs to one test."""

    cluster: Cluster
    name: str

    @property
    def dsn(self) -> str:
        """The connection URL, as superuser."""
        return self.cluster.dsn(self.name)

    def dsn_as(self, user: str) -> str:
        """Return the connection URL as another role."""
        return self.cluster.dsn(self.name, user)

    @asynccontextmanager
    async def connection(self, **options: Any) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
        """Yield a plain driver connection, closed at the end."""
        connection = await asyncpg.connect(self.dsn, **options)
        try:
            yield connection
        finally:
            await connection.close(timeout=10)


def programs_or_skip(kind: Kind) -> Programs:
    """Return the PostgreSQL of this kind, or skip the test with the reason and the fix."""
    try:
        return find_programs(kind)
    except UsageError as error:
        pytest.skip(str(error))


def default_version() -> Literal["pg15", "pg18"]:
    """Return the version for tests that do not care: the system's if there is one."""
    try:
        find_programs("system")
    except UsageError:
        return "pg18"
    return "pg15"


def make_template(cluster: Cluster) -> str:
    """Create, once per cluster, the database with the migrated schema that tests clone; return its name."""
    cluster.create_database(TEMPLATE)
    # By name and late: most helpers and tests must work before and without the store.
    migrate = importlib.import_module("headrace.store.migrate").migrate
    asyncio.run(migrate(cluster.dsn(TEMPLATE)))
    return TEMPLATE


@contextmanager
def cloned(cluster: Cluster, template: str | None, test_name: str) -> Iterator[Database]:
    """Yield a database of its own, made from the template, dropped at the end with whoever is still connected."""
    words = re.sub(r"[^a-z0-9]+", "_", test_name.lower()).strip("_")
    database = Database(cluster, f"t{next(_numbers)}_{words}"[:60])
    cluster.create_database(database.name, template)
    try:
        yield database
    finally:
        # A test may have stopped its server for good; the folder of the cluster goes anyway.
        if cluster.pid is not None:
            cluster.drop_database(database.name)
