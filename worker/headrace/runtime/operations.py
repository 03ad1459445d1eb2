"""What commands work through that need no application: one small pool, and what looks and mends on it.

A command looks and writes a row or two; it runs no duty, sends no heartbeat and claims nothing. So it loads nothing of
what a worker does either: waiting, which needs more, is a module of its own.
"""

import getpass
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

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
from headrace.store.status import PostgresStatus

CONNECTIONS = 3
SECOND_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Operations:
    """One database, for commands."""

    database: Database
    table: EventTable
    clock: Clock
    catalog: PostgresCatalog
    failures: PostgresFailures
    skipping: PostgresSkipping
    status: StatusReader

    async def who_holds(self) -> HolderReport | None:
        """Return who holds the line of the event table now; None when nobody does.

        Raises:
            NotExact: the table cannot be read exactly; the message names the fix.

        """
        horizon = HorizonService(PostgresHorizon(self.database, self.table), self.clock)
        await horizon.start()
        # Only who is met twice is worth a name: an append of this moment is over at the second look.
        await self.clock.sleep(SECOND_LOOK_SECONDS)
        await horizon.refresh()
        return await horizon.holder()


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
