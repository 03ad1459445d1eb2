"""How many events, and how many bytes, come in one batch of a key."""

from typing import Any

from headrace import App, Connection, Event, Stream, batch, projector, setup


@projector("sizes", partition_by=Stream())
class Sizes:
    """One row per batch."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model."""
        await db.execute("create table if not exists sizes (key text, events int, bytes bigint)")

    @batch(per_key=True)
    async def measure(self, events: list[Event[Any]], db: Connection) -> None:
        """Measure one batch."""
        size = sum(len(event.data.get("text", "")) for event in events)
        await db.execute("insert into sizes values ($1, $2, $3)", events[0].key, len(events), size)


app = App(Sizes(), name="sizes")
