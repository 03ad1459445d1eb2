"""The connection of set-up and teardown hooks in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.ports.connection import Connection
from headrace.testing.connection import RecordedConnection
from headrace.testing.memory import MemoryStore


class MemoryHooks:
    """Implements ``ports.hooks.Hooks``: every statement counts as committed at once."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection; what was deferred is sent at the end, unless the hook raised."""
        await self._store.round_trip()
        lent = RecordedConnection(self._store.respond)
        lent.sent = self._store.executed
        try:
            yield lent
            lent.require_awaited()
            lent.settle()
        finally:
            lent.close()
