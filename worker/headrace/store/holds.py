"""Holding one key of a subscription, and letting it go: the statements behind `pause` and `reactivate NAME#KEY`.

A hold is written on the partition and looked at by every load, so a key that is leased at that moment
is finished by its owner or leaves its group. Whoever waits for that asks ``holder_of``.
"""

from headrace.domain.errors import NotAllowed
from headrace.domain.ids import PartitionId, PartitionKey, Run
from headrace.store.pool import Database

PAUSED = "paused"


async def hold_key(database: Database, run: Run, key: PartitionKey, hold: str = PAUSED) -> PartitionId:
    """Hold a key, also one that has no event yet; returns its partition. Holding it again changes the reason.

    Raises:
        NotAllowed: the subscription was not set up, so nothing is routed that could be held.

    """
    queries = database.queries
    async with database.session() as session:
        async with session.transaction():
            if await session.fetchval(queries.hold_cursor_lock, run) is None:
                raise NotAllowed(f"run {run} has no keys yet: set the subscription up first (`headrace setup`)")
            part = await session.fetchval(queries.hold_insert, run, key, hold)
            if part is None:
                part = await session.fetchval(queries.hold_partition, run, key, hold)
        # After the commit: a router that raises the row now makes it due, and the load finds the hold.
        await session.execute(queries.hold_ready, part)
    return PartitionId(part)


async def unhold_key(database: Database, run: Run, key: PartitionKey) -> bool:
    """Let a held key go on, from its own next try if it fails; False when it was not held."""
    queries = database.queries
    async with database.session() as session, session.transaction():
        part = await session.fetchval(queries.unhold_partition, run, key)
        if part is None:
            return False
        await session.execute(queries.unhold_lock, part)
        await session.execute(queries.unhold_ready, part)
    return True


async def holder_of(database: Database, part: PartitionId) -> str | None:
    """Return the worker that has the key in its hands at this moment, None when nobody has."""
    async with database.session() as session:
        worker: str | None = await session.fetchval(database.queries.hold_lease, part)
    return worker
