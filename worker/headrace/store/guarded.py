"""Short transactions in which the planner may only walk indexes.

A plan outlives what it was made for: one that was kept from when a table was empty scans all of it
after a burst. Every statement that uses this has its index; statements of users never run in here.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.store.errors import translated
from headrace.store.pool import Database, Session


@asynccontextmanager
async def guarded(database: Database) -> AsyncIterator[Session]:
    """Lend a session in a guarded READ COMMITTED transaction; costs two round trips beside what runs in it.

    After an error the connection is given up with its transaction.
    """
    async with database.session() as session:
        if database.pooler:
            async with session.transaction():
                await session.execute(session.queries.guard)
                yield session
            return
        session.count(session.queries.guard)
        with translated():
            # One script instead of the driver's own BEGIN and a statement after it.
            await session.connection.execute(session.queries.begin_guarded)
        yield session
        with translated():
            await session.connection.execute(session.queries.commit_guarded)
