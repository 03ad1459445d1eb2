"""The fence by fixed schedules: a stale owner stores nothing, however it comes to know that it is one.

And what else keeps a handler inside the transaction that moves its positions.
"""

import asyncpg
import pytest

from headrace.domain.errors import HandlerTimeout, LeaseLost, NotAllowed, TransactionAborted, Unavailable
from headrace.domain.event import EVERYTHING
from headrace.domain.ids import Position
from headrace.ports.work import ClaimGroup, Loaded
from support.databases import Database
from support.figures import stats
from support.rig import Rig, rig
from support.waiting import until
from support.worlds import flush_of, log_flush_of

FAR = Position(1000)
NOTE = "insert into notes values ($1)"


async def claimed(r: Rig) -> tuple[ClaimGroup, Loaded]:
    """Return a group of one event and its load; `notes` is the read model."""
    await r.admin.execute("create table notes (n int primary key)")
    orders = await r.world.subscribe()
    await r.world.append("k", "X")
    await r.world.route(orders)
    group = await r.world.claimed(orders)
    return group, await r.world.load(group)


async def notes(r: Rig) -> list[int]:
    """Return what is in the read model."""
    return [row["n"] for row in await r.admin.fetch("select n from notes order by n")]


async def test_lease_lost_because_the_fence_finds_no_row(database: Database) -> None:
    """A worker that was stopped between claim and work finds its lease taken over: the first statement refuses it."""
    async with rig(database) as r:
        group, loaded = await claimed(r)
        await r.world.advance(2000)
        assert [taken.worker for taken in await r.world.work(2).take_over()] == ["worker-1"]
        with pytest.raises(LeaseLost, match=f"lease {group.lease} is gone"):
            async with r.world.work().begin(group, 10.0):
                pytest.fail("a stale owner got a transaction")
        with pytest.raises(LeaseLost):
            await r.world.work().flush(flush_of(group, loaded.partitions))
        assert await notes(r) == []


async def test_lease_lost_because_the_server_ended_the_session(database: Database) -> None:
    """A worker that was stopped inside its transaction: the server ends that, it is taken over, then it is refused.

    What it wrote is gone. Its next statement says why, and so does everything after it on that transaction.
    """
    async with rig(database) as r:
        group, loaded = await claimed(r)

        async def stop_and_go_on() -> None:
            async with r.world.work().begin(group, 0.3) as tx:
                await tx.connection.execute(NOTE, 1)
                await r.world.advance(2000)
                assert await r.world.work(2).take_over() == []
                await until(r.world.work(2).take_over, message="the idle session is ended and its lease taken over")
                for _ in range(2):
                    with pytest.raises((HandlerTimeout, Unavailable), match="timeout="):
                        await tx.connection.execute(NOTE, 2)
                with pytest.raises((HandlerTimeout, Unavailable), match="timeout="):
                    await tx.flush(flush_of(group, loaded.partitions))

        with pytest.raises((HandlerTimeout, Unavailable)):
            await stop_and_go_on()
        with pytest.raises(LeaseLost):
            async with r.world.work().begin(group, 10.0):
                pytest.fail("a stale owner got a transaction")
        assert await notes(r) == []


async def test_lease_of_an_open_transaction_outlives_its_expiry(database: Database) -> None:
    """Expiry is only the permission to take over: an owner that is at work commits, however late."""
    async with rig(database) as r:
        group, loaded = await claimed(r)
        async with r.world.work().begin(group, 10.0) as tx:
            await tx.connection.execute(NOTE, 1)
            await r.world.advance(2000)
            assert await r.world.work(2).take_over() == []
            await tx.flush(flush_of(group, loaded.partitions))
        assert await r.world.work(2).take_over() == []
        assert await notes(r) == [1]


@pytest.mark.parametrize(
    "script",
    ["insert into notes values (1); commit", "select 1; rollback; begin; select 1", "select 1; commit; begin;"],
)
async def test_script_that_ends_the_transaction_is_found(database: Database, script: str) -> None:
    """A script may hide a COMMIT among its statements: the fence's own mark is gone then, and the handler is told."""
    async with rig(database) as r:
        group, loaded = await claimed(r)

        async def go_on_after_it() -> None:
            async with r.world.work().begin(group, 10.0) as tx:
                with pytest.raises(NotAllowed):
                    await tx.connection.execute(script)
                await tx.flush(flush_of(group, loaded.partitions))

        with pytest.raises(NotAllowed, match="leave out BEGIN, COMMIT and ROLLBACK"):
            await go_on_after_it()
        await r.world.work().release([group.lease])
        assert await r.admin.fetchval("select position from headrace.partitions") == 0


async def test_harmless_scripts_pass(database: Database) -> None:
    """Several statements without arguments go as one script, inside the fenced transaction."""
    async with rig(database) as r:
        group, loaded = await claimed(r)
        async with r.world.work().begin(group, 10.0) as tx:
            await tx.connection.execute("create temp table mine (n int) on commit drop; insert into notes values (7);")
            tx.connection.defer("insert into notes values (8); insert into notes values (9)")
            await tx.flush(flush_of(group, loaded.partitions))
        assert await notes(r) == [7, 8, 9]


async def test_neighbours_of_one_text_are_sent_as_one(database: Database) -> None:
    """Deferred statements keep their order; equal neighbours travel together, so a thousand cost one."""
    async with rig(database) as r:
        group, loaded = await claimed(r)
        sent: list[str] = []
        r.pool.on_statement = sent.append
        async with r.world.work().begin(group, 10.0) as tx:
            for n in range(1000):
                tx.connection.defer(NOTE, n)
            tx.connection.defer("update notes set n = n + 5000 where n >= $1", 500)
            tx.connection.defer(NOTE, 500)
            await tx.flush(flush_of(group, loaded.partitions))
        assert [text.split()[0] for text in sent] == ["select", "insert", "update", "insert", "select"]
        assert (await notes(r))[:501] == [*range(501)]
        r.pool.on_statement = None


async def test_errors_of_handlers_are_the_drivers(database: Database) -> None:
    """What a handler's statement raises is what the driver raises; ours are kept for what is no fault of it."""
    async with rig(database) as r:
        group, _ = await claimed(r)
        work = r.world.work()
        for statement, error in (
            ("select * from nowhere", asyncpg.UndefinedTableError),
            ("insert into notes values (1), (1)", asyncpg.UniqueViolationError),
            ("do $$ begin raise exception 'x' using errcode = 'HR001'; end $$", asyncpg.PostgresError),
            ("do $$ begin raise exception 'x' using errcode = '40P01'; end $$", TransactionAborted),
            ("do $$ begin raise exception 'x' using errcode = '40001'; end $$", TransactionAborted),
        ):
            with pytest.raises(error):
                async with work.begin(group, 10.0) as tx:
                    await tx.connection.execute(statement)
        await work.release([group.lease])


@pytest.mark.both_versions
@pytest.mark.parametrize("pooler", [False, True])
async def test_a_round_on_every_version_and_behind_a_pooler(database: Database, pooler: bool) -> None:
    """Nothing relies on what a session remembers: one round of everything works where each transaction may move on."""
    async with rig(database, pooler=pooler) as r:
        orders, log = await r.world.subscribe(), await r.world.subscribe("log", None)
        await r.world.append("a", "X", "X")
        await r.world.append("b", "X")
        first = await r.world.route(orders, limit=2)
        second = await r.world.route(orders)
        assert ((first.routed, first.activated), (second.routed, second.activated)) == ((2, 1), (1, 1))
        await r.world.append("a", "X")
        assert (await r.world.route(orders)).activated == 0, "a key that is ready is not activated again"
        group = await r.world.claimed(orders)
        loaded = await r.world.load(group)
        await r.admin.execute("create table notes (n int primary key)")
        async with r.world.work().begin(group, 10.0) as tx:
            for n in range(4):
                tx.connection.defer(NOTE, n)
            await tx.flush(flush_of(group, loaded.partitions))
        whole = await r.world.claim_log(log)
        assert whole is not None
        await r.world.work().flush(log_flush_of(whole, await r.world.work().load_log(whole, EVERYTHING, FAR, 10, 1000)))
        assert await notes(r) == [0, 1, 2, 3]
        assert [(row.inboxed, row.unrouted) for row in await stats(r.pool)] == [(0, 0), (0, 0)]
