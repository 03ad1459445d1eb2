"""PAR-3, 4, 8, 9 and 13 of the capabilities: what is claimed and loaded, and how much. PAR-2 and 5: test_costs."""

from headrace import App, Connection, Event, EventFilter, Stream, on, projector
from headrace.domain.engine_events import Claimed, Flushed
from headrace.domain.ids import LeaseId, Run
from headrace.ports.work import ClaimRequest, Flush, FlushMode, Progress
from headrace.store.events import PostgresEvents
from headrace.store.pool import Database as Pool
from headrace.store.work import PostgresWork
from headrace.testing.randomness import FixedIdentity
from support.bulk import append_many, blocks_of, route_all
from support.databases import Database
from support.invariants import assert_sound
from support.scenes import append, execute, opened, options, rows, value
from support.statements import name_of

MIB = 1024 * 1024
UNHURRIED = options(lease_seconds=60, group_seconds=20)
"""Claims that a slow machine does not make smaller."""
LEFT = "select (select count(*) from headrace.inbox), (select count(*) from headrace.ready where lease is not null)"


@projector("wanted", partition_by=Stream())
class Wanted:
    """Writes down the events of one type."""

    @on("Wanted")
    async def note(self, event: Event, db: Connection) -> None:
        """Write the event down."""
        await db.execute("insert into wanted values ($1)", event.position)


async def test_a_partition_reads_only_its_inbox(database: Database, scale: float) -> None:
    """PAR-3: of a partition with 2 events 1,000,000 apart 2 events are loaded, by a load that touches a few blocks."""
    between = max(int(1_000_000 * scale), 50_000)
    app = App(Wanted(), name="par")
    await execute(database, "create table wanted (position bigint primary key)")
    async with opened(app, database) as scene:
        await scene.engine.setup()
    await append(database, ("far", "Wanted", {}))
    await append_many(database, between, 100)
    await append(database, ("far", "Wanted", {}))
    await execute(database, "analyze headrace.events")
    await route_all(database, "wanted", Stream(), EventFilter(types=("Wanted",)))
    async with await Pool.open(database.dsn) as pool, database.connection() as connection:
        work = PostgresWork(pool, (await PostgresEvents.open(pool)).table, FixedIdentity(1))
        (run, part), *others = await rows(database, "select run, part from headrace.ready")
        blocks, found = await blocks_of(connection, work._load, run, [part], 1_000, 2_500, 32 * MIB, None)
    assert others == []
    assert found == 2
    assert blocks <= 30
    async with opened(app, database) as scene:
        assert (await scene.engine.run()).processed == 2
        assert [(claim.partitions, claim.backlog) for claim in scene.of(Claimed)] == [(1, 2)]
    assert await rows(database, "select position from wanted order by position") == [(1,), (between + 2,)]
    await assert_sound(database)


async def test_a_group_of_100_partitions_with_1000_events_each(database: Database) -> None:
    """PAR-4: 100 partitions with 1,000 events each are one claim, one load and one flush.

    100,000 inbox entries are more than the 65,535 parameters that a statement may have: they travel in arrays.
    """
    async with opened(App(Nothing(), name="par"), database) as scene:
        await scene.engine.setup()
    await append_many(database, 100_000, 100)
    await route_all(database, "nothing", Stream())
    sent: list[str] = []
    async with await Pool.open(database.dsn) as pool:
        work = PostgresWork(pool, (await PostgresEvents.open(pool)).table, FixedIdentity(1))
        run = Run(await value(database, "select run from headrace.subscriptions"))
        pool.on_statement = sent.append
        group = await work.claim(ClaimRequest(run, LeaseId(1), 1, 100, 100_000, 0, 60.0))
        assert group is not None
        loaded = await work.load(group, 1_000, 100_000, 512 * MIB)
        progress = tuple(
            Progress(p.part, p.events[-1].position, tuple(e.position for e in p.events)) for p in loaded.partitions
        )
        flushed = await work.flush(Flush(run, group.lease, FlushMode.END, progress))
    assert [len(p.events) for p in loaded.partitions] == [1_000] * 100
    assert flushed.drained == 100
    assert [name for name in map(name_of, sent) if name != "guard"] == ["claim", "load", "flush"]
    assert await rows(database, LEFT) == [(0, 0)]
    await assert_sound(database)


@projector("nothing", partition_by=Stream())
class Nothing:
    """Takes every event and does nothing with it."""

    @on()
    async def take(self, event: Event) -> None:
        """Do nothing."""


async def test_claims_of_a_pinned_size(database: Database) -> None:
    """PAR-8: 250 partitions with work and `partitions_per_claim=100` are 3 claims: 100, 100 and 50."""

    @projector("pinned", partition_by=Stream(), partitions_per_claim=100)
    class Pinned(Nothing):
        """The same, in claims of 100."""

    async with opened(App(Pinned(), name="par"), database, UNHURRIED) as scene:
        await scene.engine.setup()
        await append_many(database, 250, 250)
        assert (await scene.engine.run()).processed == 250
        assert [claim.partitions for claim in scene.of(Claimed)] == [100, 100, 50]
    await assert_sound(database)


async def test_the_limit_counts_by_partition_and_by_log(database: Database) -> None:
    """PAR-8: `limit` holds for each partition of a group, and for the whole log where there are no partitions.

    The two kinds are never in one group: each flush is of one subscription.
    """

    @projector("parts", partition_by=Stream(), limit=3)
    class Parts(Nothing):
        """Takes at most 3 events of a partition at a time."""

    @projector("log", limit=3)
    class Log(Nothing):
        """Takes at most 3 events of the log at a time."""

    async with opened(App(Parts(), Log(), name="par"), database, UNHURRIED) as scene:
        await scene.engine.setup()
        await append_many(database, 8, 2)
        assert (await scene.engine.run()).processed == 16
        flushes = {name: [f.events for f in scene.of(Flushed, name)] for name in ("parts", "log")}
        claims = {name: [claim.partitions for claim in scene.of(Claimed, name)] for name in ("parts", "log")}
    assert flushes == {"parts": [6, 2], "log": [3, 3, 2]}
    assert claims == {"parts": [2, 2], "log": [1, 1, 1]}
    await assert_sound(database)


async def test_a_subscription_far_behind_keeps_nobody(database: Database, scale: float) -> None:
    """PAR-9: with one subscription 50,000 events behind, the others reach the head in the same run of 1,000 events."""

    def log(name: str) -> object:
        @projector(name, start="now")
        class Log(Nothing):
            """Follows the log."""

        return Log()

    behind = max(int(50_000 * scale), 10_000)
    app = App(log("far"), log("near"), log("other"), name="par")
    async with opened(app, database) as scene:
        await scene.engine.setup(["far"])
        await append_many(database, behind, 100)
        await scene.engine.setup()
        await append_many(database, 10, 10, prefix="new-")
        result = await scene.engine.run(limit=1_000)
    at = dict(
        await rows(
            database, "select s.name, p.position from headrace.partitions p join headrace.subscriptions s using (run)"
        )
    )
    assert (at["near"], at["other"]) == (behind + 10, behind + 10)
    assert 0 < at["far"] <= 1_000
    assert (result.processed, result.has_pending) == (at["far"] + 20, True)
    await assert_sound(database)


async def test_a_big_inbox_is_drained_by_a_boot(database: Database) -> None:
    """PAR-13: an inbox of 3,500 is booted to its end without a limit: active, nothing left, in passes of 1,000.

    Before them one pass of 100, because nobody knows yet how long an event takes.
    """
    async with opened(App(Nothing(), name="par"), database, UNHURRIED) as scene:
        await append_many(database, 3_500, 1)
        await scene.engine.setup()
        result = await scene.engine.boot()
        passes = [flushed.events for flushed in scene.of(Flushed)]
    assert (result.processed, result.has_pending) == (3_500, False)
    assert passes == [100, 1_000, 1_000, 1_000, 400]
    assert await value(database, "select status from headrace.subscriptions") == "active"
    assert await rows(database, LEFT) == [(0, 0)]
    await assert_sound(database)
