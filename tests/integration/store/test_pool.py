"""Connections: errors by what to do next, counted statements, and nothing broken that comes back."""

import asyncio
from typing import Any

import asyncpg
import pytest

from headrace.domain.errors import (
    HandlerTimeout,
    HeadraceError,
    LeaseLost,
    MissingRight,
    SchemaMissing,
    TransactionAborted,
    Unavailable,
    UsageError,
)
from headrace.embedded.cluster import Cluster
from headrace.store.pool import Database
from support import databases
from support.waiting import until


async def test_wrong_dsn_is_the_users_mistake(database: databases.Database) -> None:
    """A DSN that can never work is told as such, once, and without the password that it may hold."""
    port = database.cluster.port
    for dsn in (
        f"http://ann:secret@127.0.0.1:{port}/x",
        "dbname=x password=secret",
        f"postgresql://ann:secret@127.0.0.1:{port}/{database.name}",
        f"postgresql://postgres:secret@127.0.0.1:{port}/no_such_database",
        "postgresql://ann:secret@[::1/x",
        f"postgresql://ann:secret@127.0.0.1:{port}/x?sslmode=nonsense",
    ):
        with pytest.raises(UsageError) as refused:
            await Database.open(dsn)
        assert "DSN" in str(refused.value)
        assert "secret" not in str(refused.value)


async def test_unreachable_server_is_unavailable() -> None:
    """A server that does not answer is tried again later by whoever asked: it is no mistake of the user."""
    for dsn in ("postgresql://ann@127.0.0.1:1/x", "postgresql:///x?host=/nonexistent"):
        with pytest.raises(Unavailable, match="cannot be reached"):
            await Database.open(dsn)


async def test_no_connection_left_is_unavailable(database: databases.Database) -> None:
    """Too many connections pass by themselves: retry later."""
    async with database.connection() as admin:
        await admin.execute(f'alter database "{database.name}" connection limit 1')
        role = f"limited_{database.name}"
        await admin.execute(f'create role "{role}" login')
        try:
            with pytest.raises(Unavailable):
                await Database.open(database.dsn_as(role))
        finally:
            await admin.execute(f'drop role "{role}"')


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        ("HR001", LeaseLost),
        ("40001", TransactionAborted),
        ("40P01", TransactionAborted),
        ("25P02", TransactionAborted),
        ("42501", MissingRight),
        ("42P01", SchemaMissing),
        ("42883", SchemaMissing),
        ("57P01", Unavailable),
        ("57P03", Unavailable),
        ("53300", Unavailable),
        ("08006", Unavailable),
        ("25P03", HandlerTimeout),
    ],
)
async def test_errors_by_what_to_do_next(
    database: databases.Database, sqlstate: str, kind: type[HeadraceError]
) -> None:
    """Each SQLSTATE that says what to do becomes ours, with the driver's error as its cause."""
    async with await Database.open(database.dsn) as store, store.session() as session:
        with pytest.raises(kind) as raised:
            await session.execute(f"do $$ begin raise exception 'text' using errcode = '{sqlstate}'; end $$")
        assert isinstance(raised.value.__cause__, asyncpg.PostgresError)


async def test_errors_of_the_users_own_statements_stay(database: databases.Database) -> None:
    """What a handler's author wrote wrongly is theirs: no word of `headrace migrate` for a table that they forgot."""
    async with await Database.open(database.dsn) as store, store.session() as session:
        with pytest.raises(SchemaMissing):
            await session.execute("select from forgotten")
        theirs = session.for_user()
        with pytest.raises(asyncpg.UndefinedTableError):
            await theirs.execute("select from forgotten")
        with pytest.raises(asyncpg.UniqueViolationError):
            await session.execute("create temp table t(a int primary key); insert into t values (1), (1)")
        async with theirs.transaction():
            with pytest.raises(asyncpg.DivisionByZeroError):
                await theirs.execute("select 1/0")
            with pytest.raises(TransactionAborted):
                await theirs.execute("select 1")


@pytest.mark.both_versions
async def test_idle_time_out_is_told_from_a_lost_connection(database: databases.Database) -> None:
    """When the server ended a transaction that idled too long, the handler's author hears of timeout=; when somebody
    ended the session, the caller hears that the database went away.
    """
    async with await Database.open(database.dsn, max_size=2) as store:
        with pytest.raises(HandlerTimeout, match=r"timeout="):
            await _idle_in_transaction(store, limit=0.3, terminate=False)
        with pytest.raises(Unavailable):
            await _idle_in_transaction(store, limit=60, terminate=True)
        assert await _one(store) == 1


async def _idle_in_transaction(store: Database, limit: float, terminate: bool) -> None:
    async with store.session() as session, session.transaction():
        pid = session.connection.get_server_pid()
        milliseconds = str(int(limit * 1000))
        await session.execute("select set_config('idle_in_transaction_session_timeout', $1, true)", milliseconds)
        session.expect_idle(limit)
        if terminate:
            await _terminate(store, pid)
        await until(lambda: _gone(store, pid), message="the server ends the session")
        await session.execute("select 1")


async def test_session_left_in_a_transaction_does_not_come_back(database: databases.Database) -> None:
    """A connection is never lent again inside somebody's transaction, whose locks and snapshot it would keep."""
    async with await Database.open(database.dsn, max_size=1) as store:
        async with store.session() as session:
            await session.execute("begin")
            await session.execute("create table half()")
            pid = session.connection.get_server_pid()
        async with store.session() as session:
            assert session.connection.get_server_pid() != pid
            assert await session.fetchval("select to_regclass('half')") is None


async def test_cancelled_statement_leaves_a_usable_pool(database: databases.Database) -> None:
    """A handler that is cancelled in the middle of a statement rolls back and gives its connection back clean."""
    async with await Database.open(database.dsn, max_size=1) as store:

        async def linger() -> None:
            async with store.session() as session, session.transaction():
                await session.execute("create table half()")
                await session.execute("select pg_sleep(60)")

        task = asyncio.create_task(linger())
        async with database.connection() as observer:
            await until(lambda: _sleeps(observer))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with store.session() as session:
            assert await session.fetchval("select to_regclass('half')") is None


async def test_statements_are_counted_once_each(database: databases.Database) -> None:
    """Every executed command but BEGIN, COMMIT and ROLLBACK is heard, executemany once; borrowing costs none."""
    heard: list[str] = []
    async with await Database.open(database.dsn, on_statement=heard.append) as store:
        for _ in range(3):
            async with store.session() as session, session.transaction():
                await session.fetchval("select 1")
                async with session.transaction():
                    await session.executemany("select $1::int", [(1,), (2,)])
        assert heard == ["select 1", "select $1::int"] * 3


async def test_nothing_of_a_session_is_relied_on(database: databases.Database) -> None:
    """Behind a pooler each statement runs in a transaction of its own and leaves no prepared statement behind."""
    async with await Database.open(database.dsn, pooler=True, max_size=1) as store, store.session() as session:
        assert await session.fetchval("select $1::int", 7) == 7
        assert await session.fetchval("select count(*) from pg_prepared_statements") == 0
        # Two statements of one transaction see the same virtual transaction only if it is an explicit one.
        assert await session.fetchval("select statement_timestamp() >= transaction_timestamp()")
        async with session.transaction():
            first = await session.fetchval("select pg_current_xact_id()")
            assert await session.fetchval("select pg_current_xact_id()") == first


@pytest.mark.both_versions
async def test_pool_survives_a_restart(own_cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """While the server is down calls fail as unavailable, quietly; when it is back they succeed without help."""
    async with await Database.open(own_cluster.dsn(), min_size=4, max_size=4) as store:
        for stop in (own_cluster.stop, own_cluster.kill):
            await asyncio.to_thread(stop)
            for _ in range(6):
                with pytest.raises(Unavailable):
                    await _one(store)
            await asyncio.to_thread(own_cluster.start)
            await until(lambda: _answers(store), message="the pool connects again")
            assert await asyncio.gather(*(_one(store) for _ in range(8))) == [1] * 8
    assert [record for record in caplog.records if record.name.startswith("asyncpg")] == []


async def test_close_does_not_wait_for_ever(database: databases.Database) -> None:
    """A statement that never ends does not keep a process from stopping."""
    store = await Database.open(database.dsn, max_size=1)
    async with database.connection() as observer:
        running = asyncio.create_task(_sleep_for_ever(store))
        count = (
            "select exists (select from pg_stat_activity where query like 'select pg_sleep(3600)' and state = 'active')"
        )
        await until(lambda: observer.fetchval(count))
        await store.close(timeout=0.2)
        with pytest.raises(Unavailable):
            await running


async def _sleep_for_ever(store: Database) -> None:
    async with store.session() as session:
        await session.execute("select pg_sleep(3600)")


async def _sleeps(observer: Any) -> bool:
    return bool(
        await observer.fetchval(
            """select exists (select from pg_stat_activity where query like 'select pg_sleep(%' and state = 'active'
                                and datname = current_database())"""
        )
    )


async def _one(store: Database) -> int:
    async with store.session() as session:
        value: int = await session.fetchval("select 1")
        return value


async def _answers(store: Database) -> bool:
    try:
        return await _one(store) == 1
    except Unavailable:
        return False


async def _gone(store: Database, pid: int) -> bool:
    async with store.session() as session:
        return not await session.fetchval("select exists (select from pg_stat_activity where pid = $1)", pid)


async def _terminate(store: Database, pid: int) -> None:
    async with store.session() as session:
        await session.execute("select pg_terminate_backend($1)", pid)
