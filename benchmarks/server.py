"""The PostgreSQL of a run: a fresh cluster, a prepared template, and a clone of it for each measurement.

Durability is on, as in earnest. A clone starts every measurement from the same files; a checkpoint before it keeps the
writes of preparing out of the figures.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import asyncpg

from benchmarks.loop import run
from benchmarks.queries import queries_of
from benchmarks.workload import COLUMNS, Log
from headrace.domain.errors import UsageError
from headrace.embedded.cluster import Cluster
from headrace.embedded.programs import Programs, find_programs
from headrace.store.migrate import migrate

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
    "jit": "off",
}


@dataclass(slots=True)
class Server:
    """A running cluster of this run."""

    cluster: Cluster
    settings: dict[str, str]
    _clones: int = 0

    def dsn(self, database: str) -> str:
        """Return the connection URL of a database."""
        return self.cluster.dsn(database)

    @contextmanager
    def clone(self, template: str) -> Iterator[str]:
        """Yield the DSN of a copy of a template, which is gone afterwards."""
        self._clones += 1
        name = f"measured_{self._clones}"
        self.cluster.create_database(name, template)
        try:
            run(_checkpoint(self.dsn(name)))
            yield self.dsn(name)
        finally:
            self.cluster.drop_database(name)

    def make_template(self, name: str) -> str:
        """Create a database with the product's schema and the read model of the benchmarks; return its DSN."""
        self.cluster.create_database(name)
        run(migrate(self.dsn(name)))
        run(_make_totals(self.dsn(name)))
        return self.dsn(name)


@contextmanager
def server(settings: dict[str, str] | None = None) -> Iterator[Server]:
    """Yield a fresh server, the system's PostgreSQL if there is one; nothing of it is left afterwards."""
    chosen = SETTINGS | (settings or {})
    with Cluster(_programs(), settings=chosen) as cluster:
        yield Server(cluster, chosen)


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """Yield a plain connection."""
    connection = await asyncpg.connect(dsn, server_settings={"application_name": "headrace benchmark"})
    try:
        yield connection
    finally:
        await connection.close()


async def append(dsn: str, log: Log, versions: Counter[str]) -> None:
    """Append a log by COPY and bring the statistics up to date."""
    async with connected(dsn) as connection:
        await connection.copy_records_to_table(
            "events", schema_name="headrace", columns=COLUMNS, records=log.rows(versions)
        )
        await connection.execute(queries_of("server")["tidy"])


def _programs() -> Programs:
    try:
        return find_programs("system")
    except UsageError:
        return find_programs("embedded")


async def _checkpoint(dsn: str) -> None:
    async with connected(dsn) as connection:
        await connection.execute(queries_of("server")["checkpoint"])


async def _make_totals(dsn: str) -> None:
    async with connected(dsn) as connection:
        await connection.execute(queries_of("projection")["create_totals"])
