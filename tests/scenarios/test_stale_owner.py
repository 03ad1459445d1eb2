"""Workers that are stopped beyond their lease and continued: whatever they hold by then, they write nothing any more.

Two fixed schedules, one for each way in which the database refuses a stale owner. SIGSTOP is exact: a handler waits for
a lock that the test holds, and the server shows it waiting.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from support.apps.stale import GATE
from support.databases import Database
from support.fleet import WorkerProcess, fleet
from support.invariants import assert_sound
from support.scenes import append, rows, until_value, value
from support.waiting import until

LEASE = 3.0
VARIABLES = {"lease_seconds": str(LEASE), "log_level": "debug", "log_format": "json"}
WAITING = """
    select count(*) from pg_locks l join pg_database d on d.oid = l.database
     where d.datname = current_database() and not l.granted and l.locktype = '{locktype}'
"""
DONE = "select coalesce(sum(handled), 0)::int from headrace.counters"
LEFT = """
    select (select count(*) from headrace.inbox), (select count(*) from headrace.ready),
           (select count(*) from headrace.leases), (select count(*) from headrace.failures)
"""
OPEN_TRANSACTIONS = """
    select count(*) from pg_stat_activity where datname = current_database() and state = 'idle in transaction'
"""


@asynccontextmanager
async def held(database: Database, lock: str) -> AsyncIterator[Any]:
    """Yield a function that lets go of what a statement has locked, at the latest at the end of the block."""
    async with database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(lock)
        released: list[bool] = []

        async def release() -> None:
            if not released:
                released.append(True)
                await transaction.rollback()

        try:
            yield release
        finally:
            await release()


def losses(worker: WorkerProcess) -> list[str]:
    """Return by what a worker says that it has learned of each lost lease."""
    lines = [json.loads(line) for line in worker.text().splitlines() if line.startswith("{")]
    return [line["reason"] for line in lines if line["event"].startswith("a lease was lost")]


async def assert_refused(database: Database, stale: WorkerProcess, name: str, reason: str) -> None:
    """The stale owner counts exactly one lost lease, found out in this way, and goes on working."""
    await until(lambda: losses(stale), 30.0, "the stale owner hears that its lease is lost")
    assert losses(stale) == [reason]
    assert stale.metric("headrace_lease_lost_total", subscription=name) == 1
    await append(database, ("later", "Happened", {}))
    await until_value(database, DONE, 2)
    assert losses(stale) == [reason]
    assert stale.metric("headrace_lease_lost_total", subscription=name) == 1
    await until_value(database, "select count(*) from headrace.leases", 0)
    assert await rows(database, LEFT) == [(0, 0, 0, 0)]
    await assert_sound(database)


async def test_a_reactor_that_was_stopped_finds_no_lease_row(database: Database) -> None:
    """Stopped between load and flush without an open transaction: its flush is refused, because the lease row is gone.

    The event is handled at least once, here twice; it is counted once.
    """
    with fleet(database.dsn) as workers:
        async with held(database, f"select pg_advisory_xact_lock({GATE})") as release:
            await append(database, ("one", "Happened", {}))
            stale = workers.start("stale:outside", variables=VARIABLES)
            await until_value(database, WAITING.format(locktype="advisory"), 1)
            stale.freeze()
            await release()
        workers.start("stale:outside", variables=VARIABLES)
        await until_value(database, DONE, 1)
        stale.thaw()
        await assert_refused(database, stale, "outside", "fence")
        effects = await rows(
            database, "select position, count(*), count(distinct pid) from effects group by 1 order by 1"
        )
        assert effects == [(1, 2, 2), (2, 1, 1)]


async def test_a_projector_that_was_stopped_is_ended_by_the_server(database: Database) -> None:
    """Stopped inside its open transaction: the server ends the session, so that others can take over.

    Until then that transaction keeps the lease from being taken over. What it had written is not stored.
    """
    with fleet(database.dsn) as workers:
        async with held(database, f"select pg_advisory_xact_lock({GATE})") as release:
            await append(database, ("one", "Happened", {}))
            # The server lets a session be idle for the lease, or for the handler's time-out where that is longer.
            variables = VARIABLES | {"handler_timeout_seconds": str(LEASE)}
            stale = workers.start("stale:inside", variables=variables)
            await until_value(database, WAITING.format(locktype="advisory"), 1, every=0.01)
            stale.freeze()
            await release()
        other = workers.start("stale:inside", variables=VARIABLES)
        await until_value(database, DONE, 1)
        assert await value(database, OPEN_TRANSACTIONS) == 0
        assert await rows(database, "select position, pid from effects") == [(1, other.pid)]
        stale.thaw()
        await assert_refused(database, stale, "inside", "session")
        assert await rows(database, "select position, count(*) from effects group by 1 order by 1") == [(1, 1), (2, 1)]
