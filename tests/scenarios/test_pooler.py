"""Everything through a real PgBouncer in transaction mode with two server connections.

A statement may meet any of the two sessions, so nothing may live longer in one than its transaction.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
import pytest

from headrace import AppendCondition, EventStore, NewEvent
from headrace.domain.errors import Conflict
from headrace.store.hooks import PostgresHooks
from headrace.store.pool import Database as Pool
from support.apps.stale import GATE
from support.commands import Outcome, headrace
from support.databases import Database
from support.fleet import TESTS, WorkerProcess, fleet
from support.golden import GOLDEN, assert_golden, log_or_skip
from support.invariants import assert_sound
from support.pooler import Pooler, pooled
from support.scenes import append, execute, rows, until_value, value
from support.waiting import until

LEASE = 3.0
VARIABLES = {"pooler": "true", "lease_seconds": str(LEASE), "log_level": "info"}
BACKENDS = """
    select count(*) from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""
LEFT_IN_SESSION = """
    select array(select name from pg_settings
                  where source = 'session' and setting is distinct from reset_val and name <> all ($1)),
           (select count(*) from pg_prepared_statements), (select count(*) from pg_cursors where name <> ''),
           (select count(*) from pg_listening_channels()), pg_my_temp_schema()::bigint,
           (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
           coalesce(current_setting('headrace_fence.lease', true), '')
"""
OF_THE_POOLER = ["application_name", "client_encoding", "DateStyle", "TimeZone", "standard_conforming_strings"]
"""What PgBouncer sets in a session for whoever it lends it to."""

WAITING = """
    select count(*) from pg_locks l join pg_database d on d.oid = l.database
     where d.datname = current_database() and not l.granted and l.locktype = 'advisory'
"""
DONE = "select coalesce(sum(handled), 0)::int from headrace.counters"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Take the smallest log, and all of them at full scale."""
    if "log" in metafunc.fixturenames:
        full = metafunc.config.getoption("--scale") >= 1
        metafunc.parametrize("log", list(GOLDEN) if full else [min(GOLDEN, key=lambda name: GOLDEN[name].events)])


def through(pooler: Pooler, database: Database, *arguments: str, stdin: bytes = b"") -> Outcome:
    """Run a command behind the pooler; it must end with 0."""
    outcome = headrace(
        *arguments, dsn=pooler.dsn(database.dsn), stdin=stdin, cwd=TESTS, timeout=300, variables={"pooler": "true"}
    )
    assert outcome.code == 0, outcome
    return outcome


@asynccontextmanager
async def both_sessions(pooler: Pooler, database: Database) -> AsyncIterator[list["asyncpg.Connection[Any]"]]:
    """Yield two clients in open transactions, so that each of them has one of the two server connections."""
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(2):
            client = await asyncpg.connect(pooler.dsn(database.dsn), statement_cache_size=0)
            stack.push_async_callback(client.close)
            await stack.enter_async_context(client.transaction())
            found.append(client)
        assert len({await client.fetchval("select pg_backend_pid()") for client in found}) == 2
        yield found


async def assert_nothing_left(pooler: Pooler, database: Database) -> None:
    """Assert that neither server connection holds anything of the clients that had it."""
    async with both_sessions(pooler, database) as clients:
        for client in clients:
            [found] = await client.fetch(LEFT_IN_SESSION, OF_THE_POOLER)
            assert tuple(found) == ([], 0, 0, 0, 0, 0, "")


@pytest.mark.timeout(900)
async def test_golden_run_through_two_server_connections(empty_database: Database, log: str) -> None:
    """Schema, import and three workers, one of which is killed on the way, come to the golden numbers of a log; keys
    that fail are retried meanwhile, and neither session keeps anything.
    """
    database, path = empty_database, str(log_or_skip(log))
    with pooled(database) as pooler, fleet(pooler.dsn(database.dsn)) as team:
        assert "applied 0001" in through(pooler, database, "migrate").out
        assert "up to date" in through(pooler, database, "migrate").out
        for added in (GOLDEN[log].events, 0):
            imported = through(pooler, database, "import", path, "-o", "json").json
            assert [file["added"] for file in imported] == [added]
        for _ in range(3):
            team.start("pooled:app", "--until-caught-up", "--timeout", "500", variables=VARIABLES)
        victim = await until(lambda: owner(database, team.workers), 120.0, "a worker holds a lease", every=0.002)
        assert victim is not None
        victim.kill()
        assert await value(database, BACKENDS) <= 2
        others = [worker for worker in team.workers if worker is not victim]
        # 1 is "caught up, with errors on the way": those of the keys that were tried again.
        assert all(worker.wait(520) <= 1 and "caught up: " in worker.text() for worker in others)
        assert "caught up" in through(pooler, database, "status").out
        await assert_nothing_left(pooler, database)
    await assert_golden(database, log)
    assert await value(database, "select count(*) from flaky") == GOLDEN[log].events
    assert await value(database, "select count(*) from flaky where 'cross' = any (moods)") > 0
    assert await value(database, "select count(*) from headrace.failures") == 0
    await assert_sound(database)


async def owner(database: Database, workers: list[WorkerProcess]) -> WorkerProcess | None:
    """Return a worker that holds a lease at this moment, once there is something to see of its work."""
    query = "select worker from headrace.leases where purpose = 'work' and (select count(*) > 99 from flaky)"
    try:
        names = [name for (name,) in await rows(database, query)]
    except asyncpg.UndefinedTableError:
        return None
    return next((worker for worker in workers for name in names if name.endswith(f":{worker.pid}")), None)


@asynccontextmanager
async def gate_shut(database: Database) -> AsyncIterator[Any]:
    """Keep the handlers of `support.apps.stale` waiting, until the function that is yielded was called."""
    async with database.connection() as connection:
        await connection.execute("select pg_advisory_lock($1)", GATE)
        yield lambda: connection.execute("select pg_advisory_unlock_all()")


@pytest.mark.parametrize("app", ["inside", "outside"])
async def test_a_killed_worker_is_taken_over(database: Database, app: str) -> None:
    """The key of a worker that was killed in the middle of an event is taken over, and what it had written inside the
    transaction is gone with the server connection that PgBouncer had lent it.
    """
    with pooled(database) as pooler, fleet(pooler.dsn(database.dsn)) as workers:
        async with gate_shut(database) as release:
            await append(database, ("one", "Happened", {}))
            killed = workers.start(f"stale:{app}", variables=VARIABLES)
            await until_value(database, WAITING, 1)
            killed.kill()
            other = workers.start(f"stale:{app}", variables=VARIABLES)
            await release()
        await until_value(database, DONE, 1)
        effects = [(1, killed.pid), (1, other.pid)] if app == "outside" else [(1, other.pid)]
        assert await rows(database, "select position, pid from effects order by id") == effects
        other.terminate()
        assert other.wait() == 0, other.text()
        await assert_nothing_left(pooler, database)
    await assert_sound(database)


async def test_a_worker_that_was_stopped_in_a_transaction(database: Database) -> None:
    """The server ends the transaction of a worker that stands still for longer than its lease, by a time-out that is
    set for that transaction alone: PgBouncer's other clients never meet it. Continued, the worker writes nothing.
    """
    variables = VARIABLES | {"handler_timeout_seconds": str(LEASE)}
    with pooled(database) as pooler, fleet(pooler.dsn(database.dsn)) as workers:
        async with gate_shut(database) as release:
            await append(database, ("one", "Happened", {}))
            stale = workers.start("stale:inside", variables=variables)
            await until_value(database, WAITING, 1, every=0.01)
            stale.freeze()
            await release()
        other = workers.start("stale:inside", variables=VARIABLES)
        await until_value(database, DONE, 1)
        assert await rows(database, "select position, pid from effects") == [(1, other.pid)]
        stale.thaw()
        await until(lambda: "a lease was lost" in stale.text(), 30.0, "the stale owner hears of it")
        await append(database, ("later", "Happened", {}))
        await until_value(database, DONE, 2)
        assert await rows(database, "select position, count(*) from effects group by 1 order by 1") == [(1, 1), (2, 1)]
        for worker in workers.workers:
            worker.terminate()
        assert [worker.wait() for worker in workers.workers] == [0, 0]
        await assert_nothing_left(pooler, database)
    await assert_sound(database)


LINES = b"""{"stream": "bad", "type": "T", "data": {"fail": true}}
{"stream": "doomed", "type": "T", "data": {"doom": true}}
{"stream": "good", "type": "T", "data": {}}
"""


async def test_commands_and_appends(database: Database) -> None:
    """Setting up, working once, failures looked at, resumed and skipped, conditions on appends: all behind the pooler,
    and neither session keeps anything.
    """
    app = "support.apps.cli_shop:app"
    with pooled(database) as pooler:
        dsn = pooler.dsn(database.dsn)
        through(pooler, database, "import", "-", stdin=LINES)
        with fleet(dsn) as team:
            worker = team.start("cli_shop:app", "--until-caught-up", "--timeout", "60", variables=VARIABLES)
            assert worker.wait() == 1, worker.text()
        assert "doomed" in through(pooler, database, "failures", "list").out
        through(pooler, database, "failures", "show", "orders#bad")
        through(pooler, database, "failures", "skip", "orders#doomed", "--why", "it is doomed")
        await execute(database, "alter table fixed add n int", "insert into fixed values (1)")
        through(pooler, database, "failures", "resume", "orders#bad", "--why", "fixed")
        through(pooler, database, "run", app)
        through(pooler, database, "wait", "orders", "--timeout", "20")
        assert "orders" in through(pooler, database, "status", "orders", "--partitions").out
        async with EventStore.connect(dsn, pooler=True) as store:
            decision = AppendCondition(tags=["a:1"], after=await store.head())
            await store.append("s", [NewEvent("T", {}, tags=["a:1"])], condition=decision)
            with pytest.raises(Conflict):
                await store.append("s", [NewEvent("T", {}, tags=["a:1"])], condition=decision)
            events, _ = await store.read_for_append(["a:1"])
            assert len(events) == 1
        await assert_nothing_left(pooler, database)
    assert await rows(database, "select key, version from seen order by key") == [("bad", 1), ("good", 1)]
    await assert_sound(database)


async def test_what_hooks_send(database: Database) -> None:
    """Outside any transaction of ours a script is one transaction, with settings for itself alone; a statement that no
    transaction may hold goes as it is; one with arguments and a record class of its own meets one session only.
    """

    class Mine(asyncpg.Record):
        """A record of a user's own class."""

    with pooled(database) as pooler:
        async with await Pool.open(pooler.dsn(database.dsn), pooler=True) as pool:
            hooks = PostgresHooks(pool)
            async with hooks.connection() as db, hooks.connection() as another:
                await db.execute(
                    "set local lock_timeout = '7s'; create table made as select current_setting('lock_timeout')"
                )
                await another.execute("create index concurrently on made (current_setting)")
                for connection in (db, another):
                    [row] = await connection.fetch("select * from made where $1", True, record_class=Mine)
                    assert (type(row), row["current_setting"]) == (Mine, "7s")
        await assert_nothing_left(pooler, database)


def test_the_pooler_was_not_told(database: Database) -> None:
    """Without HEADRACE_POOLER statements of one client meet those of another: one message names the setting."""
    with pooled(database, size=1) as pooler:
        found = [headrace("status", dsn=pooler.dsn(database.dsn)) for _ in range(2)]
    assert found[1].code == 2, found
    assert "set HEADRACE_POOLER=true" in found[1].err
    assert "Traceback" not in found[1].err


async def test_a_pooler_that_goes_away(database: Database) -> None:
    """A pooler that is not there is a database that cannot be reached; a worker waits for it and goes on."""
    with pooled(database) as pooler, fleet(pooler.dsn(database.dsn)) as team:
        worker = team.start("enduring:folding", variables=VARIABLES)
        await append(database, ("s", "T", {}))
        await until_value(database, "select sum(events)::int from batched", 1)
        pooler.kill()
        assert headrace("status", dsn=team.dsn, variables={"pooler": "true"}).code == 3
        await append(database, ("s", "T", {}))
        pooler.start()
        await until_value(database, "select sum(events)::int from batched", 2)
        worker.terminate()
        assert worker.wait() <= 1, worker.text()
    await assert_sound(database)
