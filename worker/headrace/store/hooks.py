"""The connection of hooks and of reactors: statements commit one by one, so that any DDL is possible."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.domain.ids import LeaseId
from headrace.ports.connection import Connection
from headrace.store.pool import Database
from headrace.store.transaction import HandlerConnection

NO_LEASE = LeaseId(0)


class _HookConnection(HandlerConnection):
    """A handler's connection without a transaction around it, so without a fence to look after."""

    async def _require_fence(self) -> None:
        """Nothing of ours is open here."""


class PostgresHooks:
    """Implements ``ports.hooks.Hooks``."""

    def __init__(self, database: Database) -> None:
        """Take where hooks work."""
        self._database = database

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection outside any transaction; what was deferred is sent at the end, unless the hook raised."""
        async with self._database.session() as session:
            lent = _HookConnection(session, NO_LEASE)
            try:
                yield lent
                lent.require_awaited()
                await lent.settle()
            finally:
                lent.close()
                if lent.is_busy:
                    # A statement that nobody waits for: whoever got this connection next would meet it.
                    session.connection.terminate()
