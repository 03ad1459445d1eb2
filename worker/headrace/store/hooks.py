"""The connection of set-up hooks: statements commit one by one, so that any DDL is possible."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.ports.connection import Connection
from headrace.store.pool import Database
from headrace.store.transaction import UserConnection


class PostgresHooks:
    """Implements ``ports.hooks.Hooks``."""

    def __init__(self, database: Database) -> None:
        """Take where hooks work."""
        self._database = database

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection outside any transaction; what was deferred is sent at the end, unless the hook raised."""
        async with self._database.session() as session:
            lent = UserConnection(session)
            yield lent
            await lent.settle()
