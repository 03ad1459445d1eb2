"""An application whose partitioner, in Python, has no key for some events."""

from typing import Any

from headrace import App, Connection, Event, PartitionKey, on, projector, setup


class ByStream:
    """The stream, unless the event says that it has no key."""

    def key(self, event: Event[Any]) -> str:
        """Return the stream of an event.

        Raises:
            ValueError: the event's data says so.

        """
        if event.data.get("nokey"):
            raise ValueError("nobody can make a key of this")
        return event.stream


@projector("keyed", partition_by=ByStream())
class Keyed:
    """One row per key."""

    @setup
    async def create(self, db: Connection) -> None:
        """Create the read model."""
        await db.execute("create table if not exists keyed (key text primary key)")

    @on()
    async def see(self, event: Event[Any], key: PartitionKey, db: Connection) -> None:
        """Note the key."""
        await db.execute("insert into keyed values ($1)", str(key))


app = App(Keyed(), name="cli_keys")
