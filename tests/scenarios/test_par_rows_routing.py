"""PAR-1, 6, 7, 10, 11, 12, 14 and 15 of the capabilities: from an event to its partition, and out of it again."""

import pytest

from headrace import (
    App,
    Bucket,
    Connection,
    Event,
    Hashed,
    Partitioner,
    PartitionKey,
    Stream,
    Tag,
    Unrecoverable,
    batch,
    on,
    projector,
)
from headrace.domain.engine_events import EventsVanished, Flushed, IdleRemoved, Routed, StatusChanged
from headrace.engine import router
from support.bulk import append_many, route_all
from support.databases import Database
from support.invariants import assert_sound
from support.scenes import append, execute, opened, options, rows, serving, until_value, value
from support.statements import ROUTE, Statements

SEEN = "create table seen (position bigint primary key, key text not null, own_key text, type text not null)"
KEYS = "select key from headrace.partitions order by key"
INSERT_TAGGED = """
    insert into headrace.events (stream, version, type, data, tags)
    values ('s', (select count(*) + 1 from headrace.events), 'Happened', '{}'::jsonb, $1::text[])
"""


def app_of(partitioner: Partitioner | None, name: str = "seen") -> App:
    """Return an app whose one projector, `seen`, writes down each event with the key that its handler was given."""

    @projector(name, partition_by=partitioner)
    class Seen:
        @on()
        async def note(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await db.execute(
                "insert into seen values ($1, $2, $3, $4)", event.position, str(key), event.key, event.type
            )

    return App(Seen(), name="par")


class ByType:
    """A partitioner in Python."""

    def key(self, event: Event) -> str | None:
        """Return the type as the key."""
        return event.type


async def ready(database: Database, app: App) -> None:
    """Set an app up, with the read model of its projector."""
    await execute(database, SEEN)
    async with opened(app, database) as scene:
        await scene.engine.setup()


@pytest.mark.parametrize("newer", [Tag("key"), ByType()], ids=["in the store", "in Python"])
async def test_routed_events_stay_in_their_partition(database: Database, newer: Partitioner, scale: float) -> None:
    """PAR-1 and PAR-7: change the partitioner while partitions lag, and everything routed is handled by the old ones.

    None is lost; the handler's key is the one that the router has stored, whatever the partitioner says now.
    """
    events = max(int(5_000 * scale), 500)
    await ready(database, app_of(Stream()))
    await append_many(database, events, 50)
    await route_all(database, "seen", Stream())
    await append_many(database, 100, 50, prefix="later-")
    async with opened(app_of(newer), database) as scene:
        assert (await scene.engine.run()).processed == events + 100
    by_old = "select count(*) from seen join headrace.events using (position) where key = stream and key = own_key"
    by_new = (
        "select count(*) from seen join headrace.events using (position) where key = own_key and stream like 'later-%'"
    )
    new_key = "substr(tags[1], 5)" if isinstance(newer, Tag) else "headrace.events.type"
    assert await value(database, by_old) == events
    assert await value(database, f"{by_new} and key = {new_key}") == 100
    assert await value(database, "select count(*) from headrace.partitions where key like 'k%'") == 50
    await assert_sound(database)


async def test_an_unpartitioned_handler_gets_the_empty_key(database: Database) -> None:
    """PAR-7: without a partitioner the key is the empty one, for every event; there is one partition."""
    await ready(database, app_of(None))
    await append_many(database, 30, 3)
    async with opened(app_of(None), database) as scene:
        assert (await scene.engine.run()).processed == 30
    assert await rows(database, "select key, own_key, count(*) from seen group by key, own_key") == [("", "", 30)]
    assert await rows(database, KEYS) == [("",)]
    await assert_sound(database)


async def test_tags_make_keys_by_their_exact_prefix(database: Database) -> None:
    """PAR-6: `Tag("course")` takes `course:…` only: not `courseware:7`, not `course` alone; first in sorted order."""
    await ready(database, app_of(Tag("course")))
    async with database.connection() as connection:
        for tags in (["course:7"], ["courseware:7"], ["course"], [], ["student:1", "course:9", "course:8"]):
            await connection.execute(INSERT_TAGGED, tags)
    async with opened(app_of(Tag("course")), database) as scene:
        assert (await scene.engine.run()).processed == 2
    assert await rows(database, "select position, key from seen order by position") == [(1, "7"), (5, "8")]
    assert await value(database, "select position from headrace.cursors") == 5
    await assert_sound(database)


async def test_the_empty_prefix_matches_nothing(database: Database) -> None:
    """PAR-6: no event belongs to `Tag("")`, not even one tagged `:7`; the cursor passes them all."""
    await ready(database, app_of(Tag("")))
    async with database.connection() as connection:
        for tags in ([":7"], ["course:7"], [""]):
            await connection.execute(INSERT_TAGGED, tags)
    async with opened(app_of(Tag("")), database) as scene:
        assert (await scene.engine.run()).processed == 0
    assert await rows(database, KEYS) == []
    assert await value(database, "select position from headrace.cursors") == 3
    await assert_sound(database)


@pytest.mark.parametrize(
    ("partitioner", "least", "most"),
    [(Bucket(Stream(), 16), 16, 16), (Hashed(Stream()), 1_000, 1_000), (ByType(), 1, 1)],
    ids=["bucket", "hashed", "custom"],
)
async def test_how_many_partitions_a_partitioner_makes(
    database: Database, partitioner: Partitioner, least: int, most: int
) -> None:
    """PAR-6: 1,000 streams make at most 16 buckets (all 16 here), 1,000 hashes, or what one's own partitioner says.

    Whatever the number, each stream is in one of them.
    """
    await ready(database, app_of(partitioner))
    await append_many(database, 2_000, 1_000)
    async with opened(app_of(partitioner), database) as scene:
        assert (await scene.engine.run()).processed == 2_000
    assert least <= await value(database, "select count(*) from headrace.partitions") <= most
    split = (
        "select stream from seen join headrace.events using (position) group by stream having count(distinct key) > 1"
    )
    assert await rows(database, split) == []
    await assert_sound(database)


async def test_one_run_routes_and_handles(database: Database) -> None:
    """PAR-10: after one run the read model has the one event, of a new key as of a known one."""
    await ready(database, app_of(Stream()))
    async with opened(app_of(Stream()), database) as scene:
        for number in range(1, 4):
            await append(database, ("one", "Happened", {}))
            assert (await scene.engine.run()).processed == 1
            assert await value(database, "select count(*) from seen where key = 'one'") == number
    await assert_sound(database)


async def test_new_keys_are_made_in_bulk(database: Database) -> None:
    """PAR-11: 8,000 new keys are made by a few statements, and with `limit=100` by those of one batch of 100.

    No statement is sent per key.
    """
    await ready(database, app_of(Stream()))
    await append_many(database, 8_000, 8_000)
    statements = Statements()
    async with opened(app_of(Stream()), database, statements.heard_by(options())) as scene:
        assert (await scene.engine.run(limit=100)).processed == 100
        assert [routed.events for routed in scene.of(Routed)] == [100]
        assert statements.count(ROUTE) == 2
        await scene.engine.run()
        assert sum(routed.events for routed in scene.of(Routed)) == 8_000
        assert statements.count(ROUTE) <= 2 + 2 * 3
    assert await value(database, "select count(*) from headrace.partitions") == 8_000
    assert await value(database, "select count(*) from seen") == 8_000
    await assert_sound(database)


@projector("failing", partition_by=Stream())
class Failing:
    """Fails at once, whatever it is given."""

    @on()
    async def fail(self, event: Event) -> None:
        """Raise."""
        raise Unrecoverable(f"not {event.stream}")


async def test_a_run_that_raises_leaves_every_partition(database: Database) -> None:
    """PAR-11: when every handler raises there is still a partition, and an inbox entry, for every routed event."""
    app = App(Failing(), name="par")
    async with opened(app, database) as scene:
        await scene.engine.setup()
        await append_many(database, 100, 50)
        result = await scene.engine.run(limit=100)
    assert len(result.errors) == 50
    assert result.processed == 0
    counts = "select (select count(*) from headrace.partitions), (select count(*) from headrace.inbox), "
    counts += "(select count(*) from headrace.failures), (select routed from headrace.cursors)"
    assert await rows(database, counts) == [(50, 100, 50, 100)]
    await assert_sound(database)


@projector("folded", partition_by=Stream())
class Folded:
    """Costs one statement per claim group."""

    @batch()
    async def fold(self, events: list[Event], db: Connection) -> None:
        """Write down how many there were."""
        await db.execute("insert into folded values ($1)", len(events))


async def test_booting_costs_statements_by_the_work(database: Database) -> None:
    """PAR-12: 4,000 keys boot with at most 1,200 statements, and twice the keys with at most 2.2 times as many."""
    sent = []
    await execute(database, "create table folded (events int)")
    for keys in (4_000, 8_000):
        await execute(database, "truncate headrace.events, headrace.subscriptions, folded")
        await append_many(database, keys * 5, keys)
        statements = Statements()
        async with opened(App(Folded(), name="par"), database, statements.heard_by(options())) as scene:
            await scene.engine.setup()
            assert (await scene.engine.boot()).processed == keys * 5
        assert await rows(database, "select sum(events)::int from folded") == [(keys * 5,)]
        assert await value(database, "select status from headrace.subscriptions") == "active"
        sent.append(statements.sent.total() + statements.ends())
    assert sent[0] <= 1_200
    assert sent[1] <= 2.2 * sent[0]
    await execute(
        database,
        "delete from headrace.cursors c where not exists (select from headrace.subscriptions s where s.run = c.run)",
    )
    await assert_sound(database)


async def test_an_idle_partition_goes_and_comes_back(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """PAR-14: with `remove_idle_after` a key that was idle for 3,600 s has no row; its next event makes a new one.

    A key that has work, or was active less long ago, keeps its row.
    """
    monkeypatch.setattr(router, "SWEEP_SECONDS", 0.05)

    @projector("seen", partition_by=Stream(), remove_idle_after=3_600)
    class Seen:
        @on()
        async def note(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await db.execute("insert into seen values ($1, $2, $2, $3)", event.position, str(key), event.type)

    await execute(database, SEEN)
    async with serving(App(Seen(), name="par"), database) as scene:
        await scene.saw(StatusChanged, status="active")
        await append(database, ("idle", "Happened", {}), ("busy", "Happened", {}))
        await until_value(database, "select count(*) from seen", 2)
        first = await value(database, "select id from headrace.partitions where key = 'idle'")
        await execute(
            database,
            "update headrace.partitions set touched_at = clock_timestamp() - case key"
            " when 'idle' then interval '3601 s' else interval '3500 s' end",
        )
        await scene.saw(IdleRemoved, partitions=1)
        assert await rows(database, KEYS) == [("busy",)]
        await append(database, ("idle", "Happened", {}))
        await until_value(database, "select count(*) from seen where key = 'idle'", 2)
        assert await value(database, "select id from headrace.partitions where key = 'idle'") > first
    await assert_sound(database)


async def test_vanished_events_are_passed_and_named(database: Database) -> None:
    """PAR-15: events that went after they were routed are passed over, named as a range, and claimed no more.

    Of a key with some of its events left these are handled, in order.
    """
    await ready(database, app_of(Stream()))
    await append_many(database, 12, 2)
    await route_all(database, "seen", Stream())
    await execute(database, "delete from headrace.events where stream = 'k0' or position in (2, 6, 10)")
    async with opened(app_of(Stream()), database) as scene:
        result = await scene.engine.run()
        vanished = {(v.key, v.first, v.last, v.count) for v in scene.of(EventsVanished)}
        again = await scene.engine.run()
        assert len([flushed for flushed in scene.of(Flushed) if flushed.partitions]) == 1
    assert (result.processed, result.has_pending, again.processed) == (3, False, 0)
    assert vanished == {("k0", 1, 11, 6), ("k1", 2, 10, 3)}
    assert await rows(database, "select position from seen order by position") == [(4,), (8,), (12,)]
    assert await rows(database, "select key, position from headrace.partitions order by key") == [
        ("k0", 11),
        ("k1", 12),
    ]
    left = "select (select count(*) from headrace.inbox), (select count(*) from headrace.ready), sum(handled)::int,"
    left += " sum(skipped)::int from headrace.counters"
    assert await rows(database, left) == [(0, 0, 3, 9)]
    await assert_sound(database)
