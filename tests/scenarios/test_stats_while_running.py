"""What the statistics say while work goes on: counts agree with the rows, estimates are near."""

import asyncio

import pytest

from headrace import App, Connection, Event, Stream, on, projector, setup
from headrace.domain.engine_events import StatusChanged
from headrace.failures.backoff import RetryPolicy
from support.bulk import append_many, route_all
from support.databases import Database
from support.invariants import assert_sound
from support.scenes import opened, rows, serving, until_value, value

PARK_AT_ONCE = RetryPolicy(attempts=0, parked_attempts=0)
SAMPLE = """
    select v.inboxed + v.waiting, (select count(*) from headrace.inbox), v.waiting,
           (select coalesce(sum(r.backlog), 0) from headrace.ready r
             where r.lease is null and r.due_at > statement_timestamp()),
           (select c.routed from headrace.cursors c)
             - (select coalesce(sum(n.handled + n.skipped), 0) from headrace.counters n),
           v.pending_partitions, (select count(*) from headrace.ready r where r.lease is not null
                                      or r.due_at <= statement_timestamp())
      from headrace.stats_v1 v
"""
"""One statement, so one snapshot: what the view says beside what the rows say."""


@projector("partly", partition_by=Stream(), retry=PARK_AT_ONCE)
class Partly:
    """Handles the events of most streams, and none of some."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model."""
        await db.execute("create table partly (position bigint primary key)")

    @on()
    async def note(self, event: Event, db: Connection) -> None:
        """Write the event down, unless its stream ends in 7."""
        if event.stream.endswith("7"):
            raise ValueError(event.stream)
        db.defer("insert into partly values ($1)", event.position)


async def test_counts_agree_with_the_rows_while_running(database: Database, scale: float) -> None:
    """Inboxed + waiting = routed - handled - skipped = the rows of the inbox, at every moment of a run.

    Waiting is what lies behind keys that are parked; keys that are due or leased are pending.
    """
    rounds = max(int(60 * scale), 6)
    samples: list[tuple[int, ...]] = []
    async with serving(App(Partly(), name="stats"), database) as scene:
        await scene.saw(StatusChanged, status="active")

        async def sample() -> None:
            async with database.connection() as connection:
                while True:
                    samples.extend(tuple(row) for row in await connection.fetch(SAMPLE))

        sampling = asyncio.create_task(sample())
        for number in range(rounds):
            await append_many(database, 1_000, 100, versions=10 * number)
        await until_value(database, "select count(*) from partly", rounds * 900, timeout=120)
        await until_value(database, "select count(*) from headrace.failures", 10)
        await until_value(database, "select count(*) from headrace.leases", 0)
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)
        last = await rows(database, SAMPLE)
    assert len(samples) >= 20
    assert len(set(samples)) >= 5, "the run was looked at while it went on"
    assert any(sample[0] > 0 for sample in samples)
    for total, inbox, waiting, later, counted, pending, due_or_leased in samples:
        assert (total, total) == (inbox, counted)
        assert waiting == later
        assert pending == due_or_leased
    assert last == [(rounds * 100, rounds * 100, rounds * 100, rounds * 100, rounds * 100, 0, 0)]
    assert await value(database, "select parked from headrace.stats_v1") == 10
    await assert_sound(database)


@pytest.mark.parametrize("keys", [500, 5_000, 100_000])
async def test_touched_partitions_are_near(database: Database, keys: int) -> None:
    """How many different keys got work lately, within 10 % for 500, 5,000 and 100,000; a key counts once."""
    async with opened(App(Partly(), name="stats"), database) as scene:
        await scene.engine.setup()
    for number in range(2 if keys <= 5_000 else 1):
        await append_many(database, keys, keys, versions=number)
        await route_all(database, "partly", Stream())
    touched = await value(database, "select touched_partitions from headrace.stats_v1")
    assert abs(touched - keys) <= keys / 10
    await assert_sound(database)
