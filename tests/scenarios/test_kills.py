"""Workers that are killed, stalled and continued, under appenders that never pause."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

import asyncpg

from headrace.store.check import broken_invariants
from headrace.store.pool import Database as Pool
from support.databases import Database
from support.fleet import Fleet, WorkerProcess, fleet
from support.random_appends import Appended, append_for
from support.waiting import until, work_for

KILL_EVERY = 2.0
LEASE = 3.0
VARIABLES = {"lease_seconds": str(LEASE), "log_level": "info"}


@dataclass(slots=True)
class Havoc:
    """What was done to the workers."""

    kills: int = 0
    stalls: int = 0


async def wreak(workers: Fleet, start: Callable[[], WorkerProcess], seconds: float, *, stalls: bool) -> Havoc:
    """Kill a random worker every two seconds and start another; stall one beyond its lease meanwhile.

    A worker that is still starting is left alone: what it takes to start is the machine's affair.
    """
    havoc, chance = Havoc(), random.Random(5)
    ends_at = asyncio.get_running_loop().time() + seconds
    stalled: tuple[WorkerProcess, float] | None = None
    while (now := asyncio.get_running_loop().time()) < ends_at:
        await work_for(KILL_EVERY)
        if stalled is not None and now >= stalled[1]:
            stalled[0].thaw()
            stalled = None
        alive = [w for w in workers.workers if w.running and w.started and (stalled is None or w is not stalled[0])]
        if not alive:
            continue
        victim = chance.choice(alive)
        if stalls and stalled is None and len(alive) > 1:
            victim.freeze()
            havoc.stalls += 1
            stalled = (victim, now + KILL_EVERY + LEASE * 1.5)
            alive.remove(victim)
            victim = chance.choice(alive)
        victim.kill()
        havoc.kills += 1
        start()
    if stalled is not None:
        stalled[0].thaw()
    return havoc


async def handled_everything(database: Database, table: str, appended: Appended) -> bool:
    """Tell whether a read model has as many events as were committed."""
    async with database.connection() as connection:
        found = await connection.fetchval(f"select count(*) from {table}")
    return int(found) >= appended.events


async def assert_nothing_left(connection: "asyncpg.Connection[asyncpg.Record]", *, unpartitioned: int) -> None:
    """Inbox, leases and ready rows are gone, but for the one row of each unpartitioned subscription."""

    async def rows() -> list[tuple[int, ...]]:
        found = await connection.fetch(
            "select (select count(*) from headrace.inbox), (select count(*) from headrace.leases),"
            " (select count(*) from headrace.ready), (select count(*) from headrace.ready where lease is not null),"
            " (select count(*) from headrace.failures)"
        )
        return [tuple(row) for row in found]

    async def is_empty() -> bool:
        return await rows() == [(0, 0, unpartitioned, 0, 0)]

    await until(is_empty, 30.0, "inbox, leases, ready and failures are empty", every=0.2)


async def assert_sound(database: Database) -> None:
    """Every invariant of the protocol holds."""
    async with await Pool.open(database.dsn) as pool, pool.session() as session:
        assert await broken_invariants(session) == []


async def test_read_models_are_exact_under_kills_and_stalls(database: Database, scale: float) -> None:
    """Every committed event is handled exactly once and in order per key, whatever happens to workers.

    60 s at scale 1: three workers, one killed every 2 s, others stopped beyond their lease and
    continued; eight appenders with random transactions, some rolled back, some held 6 s.
    """
    seconds = max(60.0 * scale, 14.0)
    with fleet(database.dsn) as workers:

        def start() -> WorkerProcess:
            return workers.start("killed:app", variables=VARIABLES)

        first = [start() for _ in range(3)]
        await until(lambda: all(worker.started for worker in first), 60.0, "three workers work")
        appended, havoc = await asyncio.gather(
            append_for(database.dsn, seconds), wreak(workers, start, seconds, stalls=True)
        )
        await until(lambda: handled_everything(database, "seen", appended), 120.0, "per_stream has all", every=0.5)
        await until(lambda: handled_everything(database, "whole_log", appended), 120.0, "whole_log has all", every=0.5)
        async with database.connection() as connection:
            await assert_nothing_left(connection, unpartitioned=1)
            committed = await connection.fetchval("select count(*) from headrace.events")
            seen = await connection.fetchval("select count(*) from seen join headrace.events using (position)")
            noted = await connection.fetchval("select count(*) from whole_log")
            found = await connection.fetch("select stream, version from per_stream")
            versions = {row["stream"]: row["version"] for row in found}
            disordered = await connection.fetchval(
                "select count(*) from (select position, lag(position) over (order by place) as before from whole_log) x"
                " where before >= position"
            )
        await assert_sound(database)

    assert havoc.kills >= 3
    assert havoc.stalls >= 1
    assert (committed, seen, noted, disordered) == (appended.events, appended.events, appended.events, 0)
    assert versions == dict(appended.versions)


async def test_a_reactor_repeats_at_most_one_event_per_key_and_kill(database: Database, scale: float) -> None:
    """Each event at least once, at most once more per kill, in order per key but for those repeats."""
    seconds = max(60.0 * scale, 10.0)
    with fleet(database.dsn) as workers:

        def start() -> WorkerProcess:
            return workers.start("killed:reacting", variables=VARIABLES)

        first = [start() for _ in range(3)]
        await until(lambda: all(worker.started for worker in first), 60.0, "three workers work")
        appended, havoc = await asyncio.gather(
            append_for(database.dsn, seconds, seed=2), wreak(workers, start, seconds, stalls=False)
        )

        async def all_done() -> bool:
            async with database.connection() as connection:
                found = await connection.fetchval(
                    "select count(*) from (select distinct stream, version from effects) x"
                )
            return int(found) >= appended.events

        await until(all_done, 120.0, "every event had its effect", every=0.5)
        async with database.connection() as connection:
            await assert_nothing_left(connection, unpartitioned=0)
            most = await connection.fetchval(
                "select max(n) from (select count(*) as n from effects group by stream, version) x"
            )
            skipped = await connection.fetchval(
                "select count(*) from (select version, max(version) over (partition by stream order by id"
                " rows between unbounded preceding and 1 preceding) as before from effects) x"
                " where version > coalesce(before, 0) + 1"
            )
        await assert_sound(database)

    assert havoc.kills >= 3
    assert most <= 1 + havoc.kills
    assert skipped == 0, "an event had its effect before an earlier one of its key"
