"""An append pays nothing for being read: same plan, same locks, nothing that fires, whether or not somebody reads."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from headrace.engine.horizon import HorizonPace, HorizonService
from headrace.runtime.system import SystemClock
from headrace.store.events import PostgresEvents
from headrace.store.horizon import PostgresHorizon
from headrace.store.pool import Database
from support import databases
from support.waiting import until

pytestmark = pytest.mark.both_versions

INSERT = "insert into headrace.events (stream, version, type, data) values ('s', {version}, 'T', '{{}}')"
FUNCTION = """select * from headrace.append_v1(array['s'], array['T'], array['{{}}'], null, null, null, null,
                                               array['s'], array[{version} - 1], null, null, null)"""


async def locks_of(connection: Any, statement: str) -> set[tuple[str, str | None, str]]:
    """Return the locks that an open append holds: kind, relation, mode."""
    await connection.execute("begin")
    await connection.execute(statement)
    rows = await connection.fetch(
        """select locktype, relation::regclass::text as relation, mode from pg_locks
            where pid = pg_backend_pid() and relation is distinct from 'pg_locks'::regclass
              and locktype <> 'virtualxid'"""
    )
    await connection.execute("commit")
    return {(row["locktype"], row["relation"], row["mode"]) for row in rows}


async def plan_of(connection: Any) -> list[str]:
    """Return the plan of a plain INSERT with all that fires."""
    async with connection.transaction():
        explain = "explain (analyze, verbose, costs off, timing off, summary off) "
        rows = await connection.fetch(explain + INSERT.format(version=1000))
        await connection.execute("delete from headrace.events where version = 1000")
    return [row[0] for row in rows]


async def test_nothing_is_added_for_readers(database: databases.Database) -> None:
    """Beside a reader that looks all the time an append by INSERT or by the function has the same plan, holds the same
    locks and none that is advisory; no trigger or rule lies on the table, and nothing is notified.
    """
    async with (
        database.connection() as appender,
        database.connection() as listener,
        await Database.open(database.dsn, max_size=3) as store,
    ):
        await appender.execute(INSERT.format(version=1))
        await appender.execute(FUNCTION.format(version=2))
        alone = (
            await locks_of(appender, INSERT.format(version=3)),
            await locks_of(appender, FUNCTION.format(version=4)),
            await plan_of(appender),
        )
        source = PostgresHorizon(store, (await PostgresEvents.open(store)).table)
        service = HorizonService(source, SystemClock(), pace=HorizonPace(fastest=0.001, slowest=0.001))
        running = asyncio.create_task(service.run())
        await until(lambda: service.latest is not None)
        read = (
            await locks_of(appender, INSERT.format(version=5)),
            await locks_of(appender, FUNCTION.format(version=6)),
            await plan_of(appender),
        )
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert read == alone
        for locks in alone[:2]:
            assert {kind for kind, _, _ in locks} == {"relation", "transactionid"}
            assert ("relation", "headrace.events", "RowExclusiveLock") in locks
            assert ("relation", "headrace.events_position_seq", "RowExclusiveLock") in locks
        triggers = await listener.fetchval(
            """select (select count(*) from pg_trigger where tgrelid = 'headrace.events'::regclass)
                    + (select count(*) from pg_rules where schemaname = 'headrace' and tablename = 'events')
                    + (select count(*) from pg_event_trigger)"""
        )
        assert triggers == 0
        # Whoever notifies takes a lock on this at its commit and puts the message into the common queue.
        assert await listener.fetchval("select pg_notification_queue_usage()") == 0
        assert ("object", None, "AccessExclusiveLock") not in alone[0]


async def test_untagged_appends_take_no_advisory_lock(database: databases.Database) -> None:
    """Only appends that write tags, or have a condition on them, meet in the locks of tags."""
    async with database.connection() as appender:
        tagged = """select * from headrace.append_v1(array['t'], array['T'], array['{}'], null, array['{a,b}'], null,
                                                     null, null, null, null, null, null)"""
        conditional = """select * from headrace.append_v1(array['u'], array['T'], array['{}'], null, null, null, null,
                                                          null, null, array['c'], null, 0)"""
        insert = "insert into headrace.events (stream, version, type, data, tags) values ('v', 1, 'T', '{}', '{a}')"
        assert ("advisory", None, "ShareLock") in await locks_of(appender, tagged)
        assert ("advisory", None, "ExclusiveLock") in await locks_of(appender, conditional)
        for plain in (insert, INSERT.format(version=1), FUNCTION.format(version=2)):
            assert "advisory" not in {kind for kind, _, _ in await locks_of(appender, plain)}
