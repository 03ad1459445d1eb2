"""An application that reads somebody else's table, some of whose events have no key and some fail."""

from typing import Any

from headrace import App, Connection, Event, PartitionKey, Stream, TableMapping, Unrecoverable, on, projector, setup

JOURNAL = TableMapping(
    "journal", position="id", stream="entity", type="what", data="body", version="revision", time="happened"
)


class ByRegion:
    """The region of an event, where it has one."""

    def key(self, event: Event[Any]) -> str:
        """Return the region; raises for an event that has none."""
        return str(event.data["region"])


@projector("by_entity", partition_by=Stream())
class ByEntity:
    """One row per event."""

    @setup
    async def create(self, db: Connection) -> None:
        """Create the read model."""
        await db.execute("create table if not exists by_entity (entity text, what text)")

    @on()
    async def see(self, event: Event[Any], key: PartitionKey, db: Connection) -> None:
        """Note it, or fail for good."""
        if event.data.get("doom"):
            raise Unrecoverable("nobody can handle this")
        await db.execute("insert into by_entity values ($1, $2)", str(key), event.type)


@projector("by_region", partition_by=ByRegion())
class ByRegions:
    """Takes everything."""

    @on()
    async def see(self, event: Event[Any]) -> None:
        """Do nothing."""


app = App(ByEntity(), ByRegions(), name="mapped", events=JOURNAL)
