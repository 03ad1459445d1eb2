"""How many events of each key, and how many bytes of text, three kinds of projector have seen; a row per key or one."""

from collections import Counter
from typing import Any

from headrace import App, Connection, Event, PartitionKey, Stream, batch, on, projector, setup

CREATE = "create table if not exists {} (key text primary key, events int not null, bytes bigint not null)"
ADD = (
    "insert into {0} as t select * from unnest($1::text[], $2::int[], $3::bigint[])"
    " on conflict (key) do update set events = t.events + excluded.events, bytes = t.bytes + excluded.bytes"
)


def size(event: Event[Any]) -> int:
    """Return how long the text of an event is."""
    return len(event.data["text"])


async def add(table: str, events: list[Event[Any]], db: Connection) -> None:
    """Add a batch of events of several keys to a table."""
    counts, sizes = Counter[str](), Counter[str]()
    for event in events:
        counts[str(event.key)] += 1
        sizes[str(event.key)] += size(event)
    keys = sorted(counts)
    await db.execute(ADD.format(table), keys, [counts[key] for key in keys], [sizes[key] for key in keys])


@projector("folded", partition_by=Stream())
class Folded:
    """All events of a claim group at once."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model."""
        await db.execute(CREATE.format("folded"))

    @batch()
    async def fold(self, events: list[Event[Any]], db: Connection) -> None:
        """Fold a group."""
        await add("folded", events, db)


@projector("single", partition_by=Stream())
class Single:
    """One event at a time, its statement pipelined."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model."""
        await db.execute(CREATE.format("single"))

    @on()
    async def take(self, event: Event[Any], key: PartitionKey, db: Connection) -> None:
        """Fold one event."""
        db.defer(ADD.format("single"), [str(key)], [1], [size(event)])


@projector("logwise", partition_by=None)
class Logwise:
    """The whole log in its order."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model."""
        await db.execute(CREATE.format("logwise"))

    @batch()
    async def fold(self, events: list[Event[Any]], db: Connection) -> None:
        """Fold a batch."""
        await add("logwise", events, db)


app = App(Folded(), Single(), Logwise(), name="folding")
