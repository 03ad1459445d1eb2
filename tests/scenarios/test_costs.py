"""What a run costs, in statements and in blocks: independent of what lies idle, bounded by what is done.

Times are never asserted. What the clock drives is counted apart and printed, as are BEGIN and COMMIT.
"""

import sys
import time
from collections import Counter

from headrace import App, Connection, Event, Stream, batch, on, projector, setup
from headrace.domain.engine_events import Claimed, Flushed
from headrace.store.events import PostgresEvents
from headrace.store.pool import Database as Pool
from headrace.store.work import PostgresWork
from headrace.testing.randomness import FixedIdentity
from support.bulk import add_idle, add_inbox, append_many, blocks_of, blocks_so_far, quiet
from support.databases import Database
from support.invariants import assert_sound
from support.scenes import execute, opened, options, serving, until_value, value
from support.statements import CLAIM, HORIZON, WORK, Statements, name_of

LOOKS = {"due_runs", "caught_up"}
STARTING = {"subscription_insert", "subscription_refresh", "subscriptions", "activate"}
TOTAL = "select coalesce(sum(events), 0)::int from totals"


@projector("totals", partition_by=Stream())
class Totals:
    """Counts the events of each stream: one statement per claim group."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model."""
        await db.execute("create table totals (stream text primary key, events bigint not null)")

    @batch()
    async def fold(self, events: list[Event], db: Connection) -> None:
        """Fold the group, then one upsert."""
        counted = Counter(event.stream for event in events)
        await db.execute(
            "insert into totals select * from unnest($1::text[], $2::bigint[])"
            " on conflict (stream) do update set events = totals.events + excluded.events",
            list(counted),
            list(counted.values()),
        )


@projector("nothing", partition_by=Stream(), limit=100)
class Nothing:
    """Takes every event and does nothing with it."""

    @on()
    async def take(self, event: Event) -> None:
        """Do nothing."""


totals = App(Totals(), name="totals")
nothing = App(Nothing(), name="nothing")


async def cost_of_a_run(database: Database, idle: int) -> tuple["Counter[str]", int, int]:
    """Return statements, touched blocks and claimed partitions of a run over `idle` partitions, 10 with work."""
    statements = Statements()
    await quiet(database)
    async with opened(totals, database) as scene:
        await scene.engine.setup()
    await add_idle(database, "totals", idle)
    await append_many(database, 10, 10, stride=idle // 10)
    before = await blocks_so_far(database)
    async with opened(totals, database, statements.heard_by(options(lease_seconds=60))) as scene:
        result = await scene.engine.run()
        claimed = sum(claim.partitions for claim in scene.of(Claimed))
    blocks = await blocks_so_far(database) - before
    assert result.processed == 10
    assert await value(database, TOTAL) == 10
    await assert_sound(database)
    await execute(
        database,
        "drop table totals",
        "truncate headrace.events, headrace.subscriptions, headrace.cursors, headrace.partitions, headrace.counters",
    )
    return statements.sent, blocks, claimed


async def test_idle_partitions_cost_nothing(database: Database, scale: float) -> None:
    """PAR-2: of 1,000,000 idle partitions the 10 that get work are claimed; the run costs what it costs with 1,000.

    The same statements exactly. Blocks may differ by the height of the trees: at most two levels for each of the
    few probes per key.
    """
    few, few_blocks, _ = await cost_of_a_run(database, 1_000)
    many, many_blocks, claimed = await cost_of_a_run(database, max(int(1_000_000 * scale), 100_000))
    tell(f"blocks of a run: {few_blocks} with 1,000 idle partitions, {many_blocks} with many")
    assert claimed == 10
    assert many == few
    assert many_blocks - few_blocks <= 10 * 6


async def cost_of_a_load(database: Database, entries: int) -> tuple[int, int, int]:
    """Return the blocks of one load of 100 events from an inbox, its rows, and the blocks of a run limited to 100."""
    await quiet(database)
    async with opened(nothing, database) as scene:
        await scene.engine.setup()
    await append_many(database, entries, 1)
    await add_inbox(database, "nothing", "k0")
    async with await Pool.open(database.dsn) as pool, database.connection() as connection:
        work = PostgresWork(pool, (await PostgresEvents.open(pool)).table, FixedIdentity(1))
        run = await connection.fetchval("select run from headrace.ready")
        parts = [row["part"] for row in await connection.fetch("select part from headrace.ready")]
        load = await blocks_of(connection, work._load, run, parts, 100, 2_500, 32 * 1024 * 1024, None)
    before = await blocks_so_far(database)
    async with opened(nothing, database) as scene:
        result = await scene.engine.run(limit=100)
        assert [flushed.events for flushed in scene.of(Flushed)] == [100]
    blocks = await blocks_so_far(database) - before
    assert (result.processed, result.has_pending) == (100, True)
    await assert_sound(database)
    await execute(
        database,
        "truncate headrace.events, headrace.subscriptions, headrace.cursors, headrace.partitions, headrace.counters,"
        " headrace.inbox, headrace.ready",
    )
    return *load, blocks


async def test_a_load_reads_what_it_returns(database: Database, scale: float) -> None:
    """PAR-5: of 1,000,000 entries in one inbox a load of 100 reads 100; so does a whole run that is limited to 100.

    Blocks per event are a few, and differ from those of an inbox of 1,000 by the height of the trees only.
    """
    few, few_rows, few_blocks = await cost_of_a_load(database, 1_000)
    many, many_rows, many_blocks = await cost_of_a_load(database, max(int(1_000_000 * scale), 100_000))
    tell(f"blocks of a load of 100: {few} of 1,000 entries, {many} of many; of a run: {few_blocks}, {many_blocks}")
    assert few_rows == many_rows == 100
    assert many <= 100 * 6
    assert many - few <= 100 * 2
    assert many_blocks - few_blocks <= 100 * 4


async def test_statements_per_thousand_events(database: Database, scale: float) -> None:
    """At most 6 statements per 1,000 events in route, claim, load, handle and flush: 100,000 events over 4,000 keys.

    A batch handler with one statement per group, one worker with one lane. With work waiting the horizon is read once
    per routed batch, not by the clock as well.
    """
    events = max(int(100_000 * scale), 40_000)
    await append_many(database, events, 4_000)
    statements = Statements()
    started = time.monotonic()
    async with serving(totals, database, statements.heard_by(options())) as scene:
        await until_value(database, TOTAL, events, timeout=200, every=0.2)
        await scene.engine.wait_for("totals", timeout=60)
        seconds = time.monotonic() - started
        work = statements.count(WORK)
        names = [name_of(text) for text in statements.texts]
    print_rates(statements, events, seconds)
    assert work / events * 1_000 <= 6
    first, last = names.index("route"), len(names) - 1 - names[::-1].index("route")
    batches = names[first:last].count("route")
    assert batches >= events / 5_000 - 2
    assert sum(name in HORIZON for name in names[first:last]) == batches
    await assert_sound(database)


async def test_statements_for_light_partitions(database: Database) -> None:
    """At most 12 statements per 1,000 events where a batch gives a partition 1.1 events: 900 keys, 1,000 at a time.

    In a serving worker and in runs one after the other; what the start of a run itself asks is counted apart.
    """
    statements = Statements()
    rounds = 10
    async with opened(totals, database, statements.heard_by(options())) as scene:
        await scene.engine.setup()
        await append_many(database, 1_000, 900, prefix="run-", versions=0)
        await scene.engine.run()
        statements.clear()
        for number in range(1, rounds + 1):
            await append_many(database, 1_000, 900, prefix="run-", versions=2 * number)
            assert (await scene.engine.run()).processed == 1_000
        assert_known(statements)
        assert statements.count(WORK) <= 12 * rounds
        assert statements.count(CLAIM) == rounds, "no claim is sent to hear that nothing is left"
        tell(f"runs of 1,000 events over 900 keys: {statements.count(WORK) / rounds:g} statements each")
    statements.clear()
    done = await value(database, TOTAL)
    started = time.monotonic()
    async with serving(totals, database, statements.heard_by(options())):
        for number in range(rounds + 1):
            if number == 1:
                statements.clear()
                started = time.monotonic()
            await append_many(database, 1_000, 900, prefix="serve-", versions=2 * number)
            await until_value(database, TOTAL, done + 1_000 * (number + 1), every=0.02)
        seconds = time.monotonic() - started
        work = statements.count(WORK)
        assert_known(statements)
        print_rates(statements, 1_000 * rounds, seconds)
    assert work <= 12 * rounds
    await assert_sound(database)


def assert_known(statements: Statements) -> None:
    """Nothing was sent that is neither counted as work nor known to be something else."""
    assert set(statements.sent) <= WORK | HORIZON | LOOKS | STARTING | {"release"}


def print_rates(statements: Statements, events: int, seconds: float) -> None:
    """Print what was sent per 1,000 events, and what the clock drove per second."""
    work = statements.count(WORK)
    with_ends = work + statements.ends()
    clock = statements.by_clock + Counter({n: statements.sent[n] for n in HORIZON | LOOKS if statements.sent[n]})
    per_second = ", ".join(f"{name} {count / seconds:.2f}" for name, count in sorted(clock.items()))
    tell(
        f"{events} events in {seconds:.1f} s: {work / events * 1_000:.2f} statements per 1,000 events"
        f" ({with_ends / events * 1_000:.2f} with BEGIN and COMMIT); per second, by the clock: {per_second}"
    )


def tell(text: str) -> None:
    """Print a measured figure; seen with `-s` or `-rP`."""
    sys.stdout.write(f"{text}\n")
