"""What one load brings: exactly the inboxed events, within both budgets, however large or compressible they are."""

import json

import pytest

from headrace.domain.event import EVERYTHING
from headrace.domain.ids import Position
from support.databases import Database
from support.rig import Rig, rig
from support.worlds import by_key, flush_of, positions_of

LARGE = 100_000
"""Characters of a large event; as one repeated letter it is stored in about a thousandth of them."""


async def append(r: Rig, stream: str, *sizes: int) -> None:
    """Append events whose data has about so many characters, all of one letter."""
    version = await r.admin.fetchval("select count(*) from headrace.events where stream = $1", stream)
    for size in sizes:
        version += 1
        await r.admin.execute(
            "insert into headrace.events (stream, version, type, data) values ($1, $2, 'X', $3)",
            stream,
            version,
            json.dumps("x" * size),
        )


async def test_bytes_are_those_that_travel(database: Database) -> None:
    """A budget of bytes counts what an event unfolds to, not what compression makes of it on disk."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        await append(r, "k", *[LARGE] * 10)
        assert await r.admin.fetchval("select max(pg_column_size(data)) from headrace.events") < LARGE / 10
        await r.world.route(orders)
        group = await r.world.claimed(orders)
        loaded = await r.world.load(group, max_bytes=3 * LARGE + 1000)
        assert positions_of(loaded) == {"k": [1, 2, 3]}
        await r.world.work().flush(flush_of(group, loaded.partitions))
        assert len(await r.world.handle_all(orders)) == 7


@pytest.mark.parametrize("max_bytes", [1, 10, 1000])
async def test_first_event_comes_however_large(database: Database, max_bytes: int) -> None:
    """A budget smaller than any event still lets one through, or its key would never move."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        await append(r, "k", LARGE, LARGE)
        await r.world.route(orders)
        group = await r.world.claimed(orders)
        loaded = await r.world.load(group, max_bytes=max_bytes)
        assert positions_of(loaded) == {"k": [1]}
        await r.world.work().release([group.lease])
        batch = await r.world.routing.read_unrouted(orders.run, EVERYTHING, Position(2), 10, max_bytes)
        assert batch.complete, "nothing is left to route"


async def test_budgets_are_of_the_whole_group(database: Database) -> None:
    """Events, bytes and the limit of a partition are counted over the group in the order of its partitions."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        for stream in ("a", "b", "c"):
            await append(r, stream, *[100] * 5)
        await r.world.route(orders)
        group = await r.world.claimed(orders)
        limited = positions_of(await r.world.load(group, limit=2))
        assert {key: len(positions) for key, positions in limited.items()} == {"a": 2, "b": 2, "c": 2}
        counted = positions_of(await r.world.load(group, max_events=7))
        assert sorted(map(len, counted.values())) == [2, 5]
        weighed = positions_of(await r.world.load(group, max_bytes=700))
        assert sum(map(len, weighed.values())) == 6
        await r.world.work().release([group.lease])


async def test_large_batch_for_python_is_cut_by_bytes(database: Database) -> None:
    """A batch that is read for a partitioner in Python stops at its bytes, says where, and is not complete."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        await append(r, "k", *[LARGE] * 6)
        batch = await r.world.routing.read_unrouted(orders.run, EVERYTHING, Position(6), 10, 2 * LARGE)
        assert ([e.position for e in batch.events], batch.last, batch.complete) == ([1, 2], 2, False)


async def test_vanished_events_are_named(database: Database) -> None:
    """PAR-15: an inboxed position whose event is gone is loaded as vanished, beside those that are there."""
    async with rig(database, sound=False) as r:
        orders = await r.world.subscribe()
        await append(r, "k", 1, 1, 1, 1)
        await r.world.route(orders)
        await r.admin.execute("delete from headrace.events where position in (2, 4)")
        group = await r.world.claimed(orders)
        found = by_key(await r.world.load(group))["k"]
        assert ([e.position for e in found.events], found.vanished) == ([1, 3], (2, 4))
        await r.world.work().flush(flush_of(group, (found,)))
        assert await r.backlog(orders, "k") == (0, None)
        assert [row[0] for row in await r.admin.fetch("select skipped from headrace.counters")] == [2]


async def test_data_is_text_until_somebody_looks(database: Database) -> None:
    """Events come with their data as the stored text; numbers keep their digits, and nothing is decoded on the way."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        await r.admin.execute(
            "insert into headrace.events (stream, version, type, data, metadata, tags)"
            """ values ('k', 1, 'X', '{"n": 12345678901234567890.10}', '{"by": "me"}', '{a,b}')"""
        )
        await r.world.route(orders)
        group = await r.world.claimed(orders)
        (event,) = by_key(await r.world.load(group))["k"].events
        assert event.raw_data == '{"n": 12345678901234567890.10}'
        assert (event.tags, event.metadata, event.subscription, event.key) == (("a", "b"), {"by": "me"}, "orders", "k")
        await r.world.work().release([group.lease])
