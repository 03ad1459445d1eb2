"""`stats_v1`: what the operator, dashboards and `headrace status` read of each subscription."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from headrace.domain.event import EventFilter
from headrace.domain.ids import PartitionKey, Position
from headrace.domain.mapping import TableMapping
from headrace.domain.subscription import ErrorClass
from headrace.ports.status import Standing
from headrace.ports.work import FailureState
from headrace.ports.workers import Beat
from headrace.store.catalog import PostgresCatalog
from headrace.store.holds import hold_key
from headrace.store.mapping import inspect_table
from headrace.testing.randomness import FixedIdentity
from support.databases import Database
from support.figures import stats
from support.rig import Rig, rig
from support.worlds import declared, failure_of

COLUMNS = """
    subscription app group_name status status_reason position head horizon_held_seconds unrouted held inboxed waiting
    in_flight oldest_seconds pending_partitions touched_partitions largest_partition parked next_due_at arrivals_total
    processed_total busy_seconds_total workers capacity sampled_at
"""
BEAT = Beat(
    UUID(int=9), "shop", "worker-9", "1", ("orders",), lanes=3, every=1.0, horizon=Position(0), head=Position(0)
)


async def of(r: Rig, name: str = "orders") -> Any:
    """Return the statistics of one subscription."""
    (row,) = await stats(r.pool, [name])
    return row


async def beat(r: Rig, horizon: int, **values: Any) -> None:
    """Let a worker live that declares `orders` and sees this horizon."""
    head = Position(await r.world.reader.head())
    await r.world.workers.beat(replace(BEAT, horizon=Position(horizon), head=head, **values))


async def test_view_has_the_published_columns(database: Database) -> None:
    """The columns of the view are those that dashboards rely on, in their order; a status opens with the same."""
    async with rig(database) as r:
        rows = await r.admin.fetch(
            "select attname from pg_attribute"
            " where attrelid = 'headrace.stats_v1'::regclass and attnum > 0 order by attnum"
        )
        assert [row["attname"] for row in rows] == COLUMNS.split()
        assert [field.name for field in fields(Standing)][: len(rows)] == COLUMNS.split()


async def test_everything_visible_is_unrouted_where_nobody_lives(database: Database) -> None:
    """At zero workers nobody reports a horizon: what is visible counts, and whether it is held is not known."""
    async with rig(database) as r:
        await r.world.subscribe()
        await r.world.append("k", "X", "X", "X")
        row = await of(r)
        assert (row.unrouted, row.held, row.horizon_held_seconds, row.head) == (3, 0, None, 3)
        assert (row.workers, row.capacity) == (0, 0)
        assert row.oldest_seconds is not None
        assert row.oldest_seconds >= 0
        assert row.status_reason == "no live worker works on it"


async def test_reported_horizon_parts_unrouted_from_held(database: Database) -> None:
    """Events above the newest line that a live worker has reported are held; the reason names who holds it."""
    async with rig(database) as r:
        await r.world.subscribe()
        await r.world.append("k", "X", "X", "X")
        since = datetime.now(UTC) - timedelta(seconds=12)
        await beat(r, 1, held_by="pid 7 (importer)", held_since=since)
        row = await of(r)
        assert (row.unrouted, row.held, row.workers, row.capacity) == (1, 2, 1, 3)
        assert row.horizon_held_seconds == pytest.approx(12, abs=8)
        assert row.status_reason == "2 events are held back at position 1 by pid 7 (importer)"
        await beat(r, 3)
        row = await of(r)
        assert (row.unrouted, row.held, row.horizon_held_seconds, row.status_reason) == (3, 0, 0, None)


async def test_only_live_workers_count(database: Database) -> None:
    """A worker whose last beat is older than three of its intervals is dead: neither capacity nor horizon."""
    async with rig(database) as r:
        await r.world.subscribe()
        await r.world.append("k", "X", "X")
        await beat(r, 1)
        assert ((await of(r)).workers, (await of(r)).held) == (1, 1)
        await r.admin.execute("update headrace.workers set beat_at = beat_at - interval '4 s'")
        row = await of(r)
        assert (row.workers, row.capacity, row.held, row.unrouted, row.horizon_held_seconds) == (0, 0, 0, 2, None)


async def test_only_wanted_events_count(database: Database) -> None:
    """Unrouted and held are counted by what the subscription wants: types, streams, tags."""
    async with rig(database) as r:
        wanted = {
            "types": EventFilter(types=("A", "B")),
            "streams": EventFilter(streams=("a",)),
            "tags": EventFilter(tags=("t",)),
            "nothing": EventFilter(types=()),
        }
        for name, one in wanted.items():
            await r.world.subscribe(name, wanted=one)
        await r.world.append("a", "A", "B", "C", "A")
        await r.world.append("b", "A", tags=["t"])
        counted = {row.subscription: row.unrouted for row in await stats(r.pool)}
        assert counted == {"types": 4, "streams": 4, "tags": 1, "nothing": 0}


async def test_counts_beyond_the_cap_are_estimated(database: Database) -> None:
    """Far more than is counted is extrapolated by position, close where events are spread evenly."""
    async with rig(database) as r:
        await r.world.subscribe("all")
        await r.world.subscribe("types", wanted=EventFilter(types=("T0", "T1", "Rare")))
        await r.world.subscribe("streams", wanted=EventFilter(streams=("s1", "s2")))
        await r.admin.execute(
            "insert into headrace.events (stream, version, type, data)"
            " select 's' || g % 10, 1 + g / 10, case when g = 5 then 'Rare' else 'T' || g % 5 end, '{}'"
            " from generate_series(1, 60000) g"
        )
        counted = {row.subscription: row.unrouted for row in await stats(r.pool)}
        assert counted["all"] == pytest.approx(60_000, rel=0.02)
        assert counted["types"] == pytest.approx(24_001, rel=0.02)
        assert counted["streams"] == pytest.approx(12_000, rel=0.05)


async def test_inbox_parts_into_due_and_waiting(database: Database) -> None:
    """Keys that are due or leased are inboxed, those that back off, are parked or held wait; the sum is exact."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        for stream, count in (("due", 1), ("leased", 2), ("backs off", 3), ("parked", 4), ("held", 5)):
            await r.world.append(stream, *["X"] * count)
        await r.world.route(orders)
        await hold_key(r.pool, orders.run, PartitionKey("held"))
        group = await r.world.claimed(orders)
        found = {str(p.key): p for p in (await r.world.load(group)).partitions}
        await r.world.work().fail(failure_of(group, found["backs off"], delay=500.0))
        await r.world.work().fail(failure_of(group, found["parked"], state=FailureState.WAITING, delay=None))
        await r.world.work().slow(group.lease, found["due"].part, -1.0)
        row = await of(r)
        assert (row.inboxed, row.waiting, row.in_flight) == (3, 12, 2)
        assert (row.pending_partitions, row.largest_partition, row.parked) == (2, 2, 1)
        assert row.next_due_at is not None
        assert (row.next_due_at - row.sampled_at).total_seconds() == pytest.approx(500, abs=60)
        assert (row.arrivals_total, row.processed_total, row.touched_partitions) == (15, 0, 5)
        assert "parked keys: 1 (headrace failures list orders)" in str(row.status_reason)
        await r.world.work().release([group.lease])
        assert sorted(await r.world.handle_all(orders)) == [1, 2, 3]
        row = await of(r)
        assert (row.inboxed, row.waiting, row.in_flight, row.pending_partitions) == (0, 12, 0, 0)
        assert (row.processed_total, row.arrivals_total) == (3, 15)


async def test_many_waiting_keys_are_estimated(database: Database) -> None:
    """Beyond a thousand keys that wait, how much lies behind them is told from the first thousand of them."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        await r.admin.execute(
            "insert into headrace.events (stream, version, type, data)"
            " select 'k' || g % 3000, 1 + g / 3000, 'X', '{}' from generate_series(0, 5999) g"
        )
        while not (await r.world.route(orders, limit=5000)).complete:
            pass
        await r.admin.execute(
            "update headrace.ready r set due_at = now() + interval '1 hour' from headrace.partitions p"
            " where p.id = r.part and p.key <> all (array['k1', 'k2'])"
        )
        row = await of(r)
        assert (row.inboxed, row.waiting, row.pending_partitions) == (4, 5996, 2)
        assert row.largest_partition == 2


async def test_oldest_is_the_oldest_of_what_can_be_worked_on(database: Database) -> None:
    """The age is that of the oldest event of a key that is due or leased; what is parked does not make it older."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        await r.world.append("parked", "X")
        await r.world.append("due", "X")
        await r.admin.execute("update headrace.events set appended_at = now() - position * interval '100 s'")
        await r.world.route(orders)
        part = await r.part(orders, "parked")
        before = (await of(r)).oldest_seconds
        await hold_key(r.pool, orders.run, PartitionKey("parked"))
        after = (await of(r)).oldest_seconds
        assert before == pytest.approx(100, abs=50)
        assert after == pytest.approx(200, abs=50)
        await r.admin.execute("delete from headrace.ready where part = $1", part)
        await r.admin.execute("delete from headrace.inbox where part = $1", part)
        await r.admin.execute("update headrace.cursors set routed = 1, activated = 1")
        await r.world.handle_all(orders)
        assert (await of(r)).oldest_seconds is None


async def test_whole_log_counts_above_its_position(database: Database) -> None:
    """An unpartitioned subscription has no inbox: what lies above its position is unrouted."""
    async with rig(database) as r:
        log = await r.world.subscribe("log", None)
        await r.world.append("k", "X", "X", "X")
        row = await of(r, "log")
        assert (row.position, row.unrouted, row.inboxed, row.waiting) == (0, 3, 0, 0)
        assert (row.pending_partitions, row.largest_partition) == (1, 3)
        group = await r.world.claim_log(log)
        assert group is not None
        assert (await of(r, "log")).in_flight == 3
        await r.world.work().release([group.lease])


async def test_reason_of_a_main_that_stands_still(database: Database) -> None:
    """Error shows its reason, paused who did it: a person."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        await r.world.catalog.stop_main(orders.run, ErrorClass.KEY, "no key for position 7", 5.0)
        row = await of(r)
        assert (row.status, row.status_reason) == ("error", "no key for position 7")
        await r.admin.execute("update headrace.subscriptions set status = 'paused'")
        assert str((await of(r)).status_reason).startswith("paused by a person")


async def test_mapped_tables_are_counted_too(database: Database) -> None:
    """A subscription of somebody else's table is counted in that table, by what its workers have saved about it."""
    async with rig(database) as r:
        await r.admin.execute(
            "create table public.log (id bigserial primary key, topic text not null, kind text not null, body text,"
            " at timestamptz not null default now());"
            " insert into public.log (topic, kind, body) select 'a', 'K' || g % 2, '{}' from generate_series(1, 10) g"
        )
        mapping = TableMapping("log", position="id", stream="topic", type="kind", data="body", time="at")
        async with r.pool.session() as session:
            table = await inspect_table(session, mapping)
        catalog = PostgresCatalog(r.pool, table, FixedIdentity(1))
        declaration = declared("mapped", wanted=EventFilter(types=("K1",)))
        assert await catalog.declare([declaration]) == await catalog.declare([declaration])
        (stored,) = await catalog.find(["mapped"])
        await catalog.start(stored, Position(4), Position(4))
        row = await of(r, "mapped")
        assert (row.head, row.position, row.unrouted) == (10, 4, 3)
        assert row.oldest_seconds is not None
        assert await r.admin.fetchval("select count(*) from headrace.sources") == 1


async def test_touched_partitions_are_estimated_closely_and_cheaply(database: Database) -> None:
    """How many keys got work lately is told within a tenth, beyond the sample too; touching them again is free."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        touch = "select headrace.touch_v1($1, array(select generate_series(1, $2::bigint)))"
        place = "select ctid::text from headrace.touches"
        for keys in (5, 2_000, 20_000):
            await r.admin.execute(touch, orders.run, keys)
            assert (await of(r)).touched_partitions == pytest.approx(keys, rel=0.1)
        before = await r.admin.fetchval(place)
        await r.admin.execute(touch, orders.run, 10)
        minute_has_turned = await r.admin.fetchval(
            "select minute_at <> date_trunc('minute', now()) from headrace.touches"
        )
        assert minute_has_turned or await r.admin.fetchval(place) == before
