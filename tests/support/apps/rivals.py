"""Two applications for one database, alike but for their names."""

from typing import Any

from headrace import App, Connection, Event, PartitionKey, Stream, on, projector, setup


def app_of(name: str) -> App:
    """Return an application with subscriptions and tables that begin with its name."""

    @projector(f"{name}_streams", partition_by=Stream())
    class Streams:
        """One row per event of a stream."""

        @setup
        async def create(self, db: Connection) -> None:
            """Make the read model."""
            await db.execute(
                f"create table if not exists {name}_seen (key text, version int, primary key (key, version))"
            )

        @on()
        async def see(self, event: Event[Any], key: PartitionKey, db: Connection) -> None:
            """Take one event; one before its predecessor raises."""
            done = await db.execute(
                f"insert into {name}_seen select $1::text, $2 where $2 = 1"
                f" or exists (select from {name}_seen where key = $1 and version = $2 - 1)",
                key,
                event.version,
            )
            if done != "INSERT 0 1":
                raise AssertionError(f"{key} is not at version {event.version - 1}")

    @projector(f"{name}_log")
    class Log:
        """One row per event of the whole log."""

        @setup
        async def create(self, db: Connection) -> None:
            """Make the read model."""
            await db.execute(f"create table if not exists {name}_noted (position bigint primary key)")

        @on()
        async def note(self, event: Event[Any], db: Connection) -> None:
            """Take one event."""
            await db.execute(f"insert into {name}_noted values ($1)", event.position)

    return App(Streams(), Log(), name=name)


blue = app_of("blue")
green = app_of("green")
