"""What commands work through that need no application: one small pool, and what looks and mends on it.

A command looks and writes a row or two; it runs no duty, sends no heartbeat and claims nothing. So it loads nothing of
what a worker does either: waiting, which needs more, is a module of its own.
"""

import getpass
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from headrace.domain.errors import NotExact
from headrace.domain.mapping import TableMapping
from headrace.engine.horizon import HorizonService
from headrace.ports.clock import Clock
from headrace.ports.horizon import HolderReport
from headrace.ports.status import StatusReader
from headrace.runtime.system import SystemClock, SystemIdentity
from headrace.settings import Settings
from headrace.store.catalog import PostgresCatalog
from headrace.store.failures import PostgresFailures
from headrace.store.horizon import PostgresHorizon
from headrace.store.mapping import EventTable, inspect_table
from headrace.store.migrate import require_schema
from headrace.store.pool import Database
from headrace.store.skipping import PostgresSkipping
from headrace.store.sources import table_of, tables_of
from headrace.store.status import PostgresStatus

CONNECTIONS = 3
SECOND_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Lines:
    """Who holds the line of our own event table, and of each subscription's; and which tables are not read exactly."""

    own: HolderReport | None = None
    of: dict[str, HolderReport] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operations:
    """One database, for commands. ``table`` is the event table that is meant where no subscription is named: ours."""

    database: Database
    table: EventTable
    clock: Clock
    catalog: PostgresCatalog
    failures: PostgresFailures
    skipping: PostgresSkipping
    status: StatusReader

    async def reading(self, name: str) -> "Operations":
        """Return the same for the event table of a subscription; unchanged when there is no such subscription.

        Raises:
            UsageError: its mapped event table is gone.

        """
        async with self.database.session() as session:
            table = await table_of(session, self.table, name)
        if table is self.table:
            return self
        return replace(self, table=table, catalog=PostgresCatalog(self.database, table, SystemIdentity()))

    async def who_holds(self, mapping: TableMapping | None = None) -> HolderReport | None:
        """Return who holds the line of an event table now (None: of our own); None when nobody does.

        Raises:
            NotExact: the table cannot be read exactly; the message names the fix.
            UsageError: the mapping does not fit this database.

        """
        table = self.table
        if mapping is not None:
            async with self.database.session() as session:
                table = await inspect_table(session, mapping)
        horizon = self._service(table)
        await horizon.start()
        # Only who is met twice is worth a name: an append of this moment is over at the second look.
        await self.clock.sleep(SECOND_LOOK_SECONDS)
        await horizon.refresh()
        return await horizon.holder()

    async def lines(self, names: Sequence[str]) -> Lines:
        """Return who holds the line of our own event table, and of each of some subscriptions, at this moment."""
        async with self.database.session() as session:
            tables = await tables_of(session, self.table, names)
        services, problems, holders = {}, [], {}
        for source, table in {self.table.source: self.table, **{t.source: t for t in tables.values()}}.items():
            service = self._service(table)
            try:
                await service.start()
                services[source] = service
            except NotExact as error:
                problems.append(str(error))
        await self.clock.sleep(SECOND_LOOK_SECONDS)
        for source, service in services.items():
            await service.refresh()
            if (holder := await service.holder()) is not None:
                holders[source] = holder
        of = {name: holders[table.source] for name, table in tables.items() if table.source in holders}
        return Lines(holders.get(self.table.source), of, tuple(problems))

    def _service(self, table: EventTable) -> HorizonService:
        return HorizonService(PostgresHorizon(self.database, table), self.clock, exact=table.mapping.exact)


@asynccontextmanager
async def open_operations(settings: Settings) -> AsyncIterator[Operations]:
    """Open a database for the time of a command.

    Raises:
        Unavailable: it cannot be reached.
        UsageError: the DSN, the schema or the role's rights forbid it.

    """
    async with await Database.open(
        settings.required_dsn(),
        schema=settings.schema_name,
        max_size=CONNECTIONS,
        application_name="headrace command",
        pooler=settings.pooler,
    ) as database:
        async with database.session() as session:
            await require_schema(session)
            table = await inspect_table(session, None)
        yield Operations(
            database,
            table,
            SystemClock(),
            PostgresCatalog(database, table, SystemIdentity()),
            PostgresFailures(database, table),
            PostgresSkipping(database, table),
            PostgresStatus(database),
        )


def who_asks() -> str:
    """Return who runs this command, for the audit: user and host, and the user behind sudo."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    behind = os.environ.get("SUDO_USER")
    return f"{user}@{socket.gethostname()}" + (f" (sudo by {behind})" if behind else "")
