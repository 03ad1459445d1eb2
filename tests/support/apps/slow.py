"""A projector that takes its time over each event, and writes down which process did it."""

import os

from headrace import App, Connection, Event, PartitionKey, Stream, on, projector, setup
from support.waiting import work_for

SECONDS = 0.2


@projector("slow", partition_by=Stream())
class Slow:
    """Awaits something else for every event."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model."""
        await db.execute("create table if not exists slow (position bigint primary key, key text, pid int)")

    @on()
    async def handle(self, event: Event, key: PartitionKey, db: Connection) -> None:
        """Take one event."""
        await work_for(SECONDS)
        db.defer("insert into slow values ($1, $2, $3)", event.position, key, os.getpid())


app = App(Slow(), name="slow")
