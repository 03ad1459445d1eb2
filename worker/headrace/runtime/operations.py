"""What commands work through that need no application: one small pool, and the ports on it.

A command looks and writes a row or two; it runs no duty, sends no heartbeat and claims nothing.
"""

import getpass
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from headrace.domain.ids import Position
from headrace.engine.arrival import wait_for
from headrace.engine.horizon import HorizonService
from headrace.engine.tracked import Ports
from headrace.ports.horizon import HolderReport
from headrace.ports.status import StatusReader
from headrace.runtime.system import SystemClock, SystemIdentity, SystemRandomness
from headrace.settings import Settings
from headrace.store.catalog import PostgresCatalog
from headrace.store.events import PostgresEvents
from headrace.store.failures import PostgresFailures
from headrace.store.hooks import PostgresHooks
from headrace.store.horizon import PostgresHorizon
from headrace.store.mapping import EventTable, inspect_table
from headrace.store.migrate import require_schema
from headrace.store.pool import Database
from headrace.store.routing import PostgresRouting
from headrace.store.skipping import PostgresSkipping
from headrace.store.status import PostgresStatus
from headrace.store.work import PostgresWork
from headrace.telemetry.logs import LogObserver

CONNECTIONS = 3
SECOND_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Operations:
    """The ports of one database, for commands."""

    database: Database
    table: EventTable
    ports: Ports
    failures: PostgresFailures
    skipping: PostgresSkipping
    status: StatusReader

    async def who_holds(self) -> HolderReport | None:
        """Return who holds the line of the event table now; None when nobody does.

        Raises:
            NotExact: the table cannot be read exactly; the message names the fix.

        """
        horizon = HorizonService(PostgresHorizon(self.database, self.table), self.ports.clock)
        await horizon.start()
        # Only who is met twice is worth a name: an append of this moment is over at the second look.
        await self.ports.clock.sleep(SECOND_LOOK_SECONDS)
        await horizon.refresh()
        return await horizon.holder()

    async def wait_for(self, name: str, position: int | None, key: str | None, timeout: float | None) -> None:
        """Return when a subscription has handled everything up to ``position`` (default: all there is now).

        Raises:
            NotFinished: ``timeout`` seconds went by; the message says what stands in the way.
            NotFound: there is no such subscription.

        """
        horizon = HorizonService(PostgresHorizon(self.database, self.table), self.ports.clock, self.ports.observer)
        await horizon.start()
        wanted = None if position is None else Position(position)
        await wait_for(self.ports, horizon, name, wanted, timeout, key)


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
        identity = SystemIdentity()
        ports = Ports(
            reader=PostgresEvents(database, table),
            routing=PostgresRouting(database, table),
            work=PostgresWork(database, table, identity),
            catalog=PostgresCatalog(database, table, identity),
            hooks=PostgresHooks(database),
            clock=SystemClock(),
            randomness=SystemRandomness(),
            observer=LogObserver(),
        )
        failures, skipping = PostgresFailures(database, table), PostgresSkipping(database, table)
        yield Operations(database, table, ports, failures, skipping, PostgresStatus(database))


def who_asks() -> str:
    """Return who runs this command, for the audit: user and host, and the user behind sudo."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    behind = os.environ.get("SUDO_USER")
    return f"{user}@{socket.gethostname()}" + (f" (sudo by {behind})" if behind else "")
