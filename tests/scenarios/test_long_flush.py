"""A flush that takes longer than a lease, beside other groups of the same worker."""

import asyncio
from typing import Any

from headrace import App, Connection, Event, PartitionKey, Stream, on, projector
from headrace.domain.engine_events import (
    Claimed,
    Flushed,
    GroupAbandoned,
    GroupRolledBack,
    LeaseWasLost,
    StatusChanged,
    TookOver,
)
from support.databases import Database
from support.invariants import assert_sound
from support.scenes import append, execute, options, rows, serving, until_value, value
from support.waiting import until

OTHERS = 10
SLOW_FLUSH = """
    create function slow_flush() returns trigger language plpgsql as $$
    begin
        perform pg_sleep({seconds});
        return null;
    end $$;
    create trigger slow_flush after update of position on headrace.partitions for each row when (new.key = 'slow')
        execute function slow_flush();
"""
FLUSHING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"


async def test_a_long_flush_loses_no_lease(database: Database, scale: float) -> None:
    """A flush of 20 s (in a small run: of three leases) beside ten other groups of the same worker: no lease is lost.

    The others are held by their handlers until it is over, so all eleven leases live by renewal meanwhile; a renewal
    that waited for the flushing one would lose all. Everything is handled once.
    """
    lease, seconds = (15.0, 20.0) if scale >= 1 else (2.0, 6.0)
    flushed, at_work = asyncio.Event(), set()

    @projector("long", partition_by=Stream(), partitions_per_claim=1, timeout=120)
    class Long:
        @on()
        async def handle(self, event: Event[Any], key: PartitionKey, db: Connection) -> None:
            if key != "slow":
                at_work.add(str(key))
                await flushed.wait()
            await db.execute("insert into long values ($1, $2)", event.position, key)

    await execute(
        database,
        "create table long (position bigint primary key, key text)",
        SLOW_FLUSH.format(seconds=seconds),
    )
    async with serving(App(Long(), name="long"), database, options(lanes=OTHERS + 1, lease_seconds=lease)) as scene:
        await scene.saw(StatusChanged, status="active")
        await append(database, *((f"other-{n}", "Happened", {}) for n in range(OTHERS)))
        await until(lambda: len(at_work) == OTHERS, 30.0, "ten groups are held by their handlers")
        await append(database, ("slow", "Happened", {}))
        await until_value(database, FLUSHING, 1)
        renewed_after = await value(database, "select clock_timestamp() + make_interval(secs => $1)", lease * 1.2)
        slow = await scene.saw(Flushed, seconds + 30.0)
        renewals = await rows(
            database,
            "select count(*), bool_and(acquired_at < $1 and expires_at > $1) from headrace.leases",
            renewed_after,
        )
        flushed.set()
        await until_value(database, "select count(*) from long", OTHERS + 1)
        await scene.engine.wait_for("long", timeout=30)
        lost = [event for kind in (LeaseWasLost, TookOver, GroupAbandoned, GroupRolledBack) for event in scene.of(kind)]
        groups = len(scene.of(Claimed))
    assert slow.seconds >= seconds
    assert renewals == [(OTHERS, True)]
    assert lost == []
    assert groups == OTHERS + 1
    left = "select (select count(*) from headrace.inbox), (select count(*) from headrace.ready), (select count(*) from"
    left += " headrace.leases), (select count(*) from headrace.failures), sum(handled)::int from headrace.counters"
    assert await rows(database, left) == [(0, 0, 0, 0, OTHERS + 1)]
    await assert_sound(database)
