"""A subscriber with an event that ends the process, for workers that die of a key."""

import os
from typing import Any

import asyncpg

from headrace import App, Connection, Event, PartitionKey, Stream, on, projector, setup


@projector("deadly", partition_by=Stream())
class Deadly:
    """Writes down what it sees; before it dies, how many keys its group had."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the tables."""
        await db.execute(
            "create table if not exists seen (place bigint generated always as identity, key text, version int)"
        )
        await db.execute(
            "create table if not exists deaths (id bigint generated always as identity, keys int, takeovers int)"
        )

    @on()
    async def see(self, event: Event[Any], key: PartitionKey, db: Connection) -> None:
        """Take one event; a deadly one is the last."""
        if event.data["deadly"]:
            await note_group(key)
            os._exit(7)
        await db.execute("insert into seen (key, version) values ($1, $2)", key, event.version)


async def note_group(key: str) -> None:
    """Write down, in a transaction of its own, how many keys share a lease with this one."""
    connection = await asyncpg.connect(os.environ["HEADRACE_DSN"])
    await connection.execute(
        "insert into deaths (keys, takeovers)"
        " select (select count(*) from headrace.ready o where o.lease = r.lease), r.takeovers"
        "   from headrace.ready r join headrace.partitions p on p.id = r.part where p.key = $1",
        key,
    )
    await connection.close()


app = App(Deadly(), name="deadly")
