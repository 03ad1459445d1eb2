"""The heartbeat table on PostgreSQL.

One statement per beat, whatever the number of workers. It informs and shares out; nothing is ever
fenced by it.
"""

from datetime import timedelta
from uuid import UUID

from headrace.ports.workers import Beat, Census
from headrace.store.pool import Database


class PostgresWorkers:
    """Implements ``ports.workers.Workers``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def beat(self, beat: Beat) -> Census:
        """Write the beat and count live lanes, this worker's included; see the port."""
        async with self._database.session() as session:
            rows = await session.fetch(
                session.queries.beat,
                beat.id,
                beat.app,
                beat.name,
                beat.version,
                list(beat.subscriptions),
                beat.lanes,
                timedelta(seconds=beat.every),
                beat.source,
                beat.horizon,
                beat.head,
                beat.held_by,
                beat.held_since,
                list(beat.routing),
                list(beat.declared),
            )
        return Census({row["name"]: row["lanes"] for row in rows})

    async def leave(self, worker: UUID) -> None:
        """Remove the worker's row; also rows dead for an hour."""
        async with self._database.session() as session:
            await session.execute(session.queries.leave, worker)
