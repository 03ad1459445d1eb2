"""Subscribers that notice every lost, doubled or reordered event; for workers that are killed.

The handlers' own statements refuse what must not happen, so a fault parks a key and cannot hide.
"""

from headrace import App, Connection, Event, PartitionKey, Stream, on, projector, reactor, setup


@projector("per_stream", partition_by=Stream())
class PerStream:
    """Counts versions of each stream; each must be the one after the last."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model and the table of what was seen."""
        await db.execute("create table if not exists per_stream (stream text primary key, version int not null)")
        await db.execute("create table if not exists seen (position bigint primary key)")

    @on()
    async def count(self, event: Event, key: PartitionKey, db: Connection) -> None:
        """Take one event; a second time, or out of order, it raises."""
        await db.execute("insert into seen values ($1)", event.position)
        if event.version == 1:
            await db.execute("insert into per_stream values ($1, 1)", key)
            return
        moved = await db.execute(
            "update per_stream set version = $2 where stream = $1 and version = $2 - 1", key, event.version
        )
        if moved != "UPDATE 1":
            raise AssertionError(f"{key} is not at version {event.version - 1}")


@projector("whole_log")
class WholeLog:
    """Writes down the whole log in global order."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model."""
        await db.execute("create table if not exists whole_log (place bigint primary key, position bigint unique)")

    @on()
    async def note(self, event: Event, db: Connection) -> None:
        """Take one event; a smaller position than the last raises."""
        last = await db.fetchrow("select place, position from whole_log order by place desc limit 1")
        if last is not None and last["position"] >= event.position:
            raise AssertionError(f"{event.position} comes after {last['position']}")
        await db.execute("insert into whole_log values ($1, $2)", last["place"] + 1 if last else 1, event.position)


@reactor("outside", partition_by=Stream(), start="beginning")
class Outside:
    """Has an effect that no rollback undoes: a row in a transaction of its own."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the table of effects."""
        await db.execute(
            "create table if not exists effects (id bigint generated always as identity, stream text, version int)"
        )

    @on()
    async def act(self, event: Event, key: PartitionKey, db: Connection) -> None:
        """Leave a trace."""
        await db.execute("insert into effects (stream, version) values ($1, $2)", key, event.version)


app = App(PerStream(), WholeLog(), name="killed")
reacting = App(Outside(), name="reacting")
