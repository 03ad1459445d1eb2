"""Read models over the table of somebody else's event-sourced shop, which is read where it lies.

`plain` and `sealed` are the same subscribers on the two ways in which the library can store its events. The handlers'
statements are plain inserts and sums: an event that comes twice is there twice, and one that is missed is missing.
"""

from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from headrace import App, Connection, Event, PartitionKey, Stream, TableMapping, on, projector, setup
from support.apps.their_shop import SEALED, TABLE, Shop

CREATED = "support.apps.their_shop:Order.Created"
LINE_ADDED = "support.apps.their_shop:Order.LineAdded"
PAID = "support.apps.their_shop:Order.Paid"


class LineAdded(BaseModel):
    """What one event of theirs is for us."""

    __event_type__ = LINE_ADDED

    article: str
    price: Decimal


class Decoding:
    """Their own decoding, by an application object of theirs that stores nothing."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.mapper = Shop(env=variables).mapper

    def __call__(self, state: bytes) -> Any:
        """Return the state of one event of theirs as its attributes."""
        if self.mapper.cipher is not None:
            state = self.mapper.cipher.decrypt(state)
        if self.mapper.compressor is not None:
            state = self.mapper.compressor.decompress(state)
        return self.mapper.transcoder.decode(state)


def mapping(decode: Decoding, appended_at: str | None = None) -> TableMapping:
    """Return where the library keeps what."""
    return TableMapping(
        TABLE,
        position="notification_id",
        stream="originator_id",
        version="originator_version",
        type="topic",
        data="state",
        appended_at=appended_at,
        decode=decode,
    )


@projector("orders", partition_by=Stream())
class Orders:
    """One row per order, with the sum of its lines."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model."""
        await db.execute(
            "create table if not exists orders (id text primary key, customer text, version int, lines int,"
            " cents numeric, paid int)"
        )

    @on(CREATED)
    async def place(self, event: Event, key: PartitionKey, db: Connection) -> None:
        """Take the customer, a UUID again after decoding."""
        await db.execute("insert into orders values ($1, $2, $3, 0, 0, 0)", key, event.data["customer"].hex, 1)

    @on(LineAdded)
    async def add(self, event: Event[LineAdded], key: PartitionKey, db: Connection) -> None:
        """Add a line, only on top of the version before."""
        await self._next(event, db, "lines = lines + 1, cents = cents + $3", key, event.version, 100 * event.data.price)

    @on(PAID)
    async def pay(self, event: Event, key: PartitionKey, db: Connection) -> None:
        """Count it as paid."""
        await self._next(event, db, "paid = paid + 1", key, event.version)

    async def _next(self, event: Event[Any], db: Connection, change: str, *values: object) -> None:
        done = await db.execute(
            f"update orders set version = $2, {change} where id = $1 and version = $2::int - 1", *values
        )
        if done != "UPDATE 1":
            raise AssertionError(f"{event} is not the next one")


@projector("whole_log")
class WholeLog:
    """The whole log in the order of its notification ids."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model."""
        await db.execute(
            "create table if not exists whole_log (place bigint generated always as identity, id bigint, stream text,"
            " version int, topic text, at timestamptz)"
        )

    @on()
    async def note(self, event: Event, db: Connection) -> None:
        """Write one event down, with the time that the library has put into its state."""
        await db.execute(
            "insert into whole_log (id, stream, version, topic, at) values ($1, $2, $3, $4, $5)",
            event.position,
            event.stream,
            event.version,
            event.type,
            event.data["timestamp"],
        )


plain_mapping = mapping(Decoding({}))
plain = App(Orders(), WholeLog(), name="projections", events=mapping(Decoding({}), "stored_at"))
sealed = App(Orders(), WholeLog(), name="projections", events=mapping(Decoding(SEALED)))
