"""A subscriber that writes to tables that somebody else has made."""

from typing import Any

from headrace import App, Connection, Event, PartitionKey, Stream, on, projector


@projector("humble", partition_by=Stream())
class Humble:
    """One row per event."""

    @on()
    async def see(self, event: Event[Any], key: PartitionKey, db: Connection) -> None:
        """Take one event."""
        await db.execute("insert into public.exact values ($1, $2)", key, event.version)


app = App(Humble(), name="humble")
