"""What handlers write through: their statements commit with the flush, or vanish with it."""

import asyncio
from typing import Any

import pytest

from headrace.domain.errors import HandlerTimeout, LeaseLost, NotAllowed, TransactionAborted
from headrace.ports.work import ClaimGroup, Loaded, WorkTransaction
from support.worlds import ANSWER, NOTE, World, WorldMaker, flush_of


async def claimed(w: World) -> tuple[ClaimGroup, Loaded]:
    """Return a loaded group of two keys."""
    orders = await w.subscribe()
    await w.append("a", "X")
    await w.append("b", "X")
    await w.route(orders)
    group = await w.claimed(orders)
    return group, await w.load(group)


class GiveUp(Exception):
    """A handler's own error."""


async def test_writes_commit_with_the_flush(world: WorldMaker) -> None:
    """Statements are there when the block has ended, in the order of the handler, deferred ones too."""
    async with world() as w:
        group, loaded = await claimed(w)
        async with w.work().begin(group, 1000.0) as transaction:
            db = transaction.connection
            db.defer(NOTE, 1)
            db.defer(NOTE, 2)
            await db.execute(NOTE, 3)
            await db.executemany(NOTE, [(4,), (5,)])
            db.defer(NOTE, 6)
            await transaction.flush(flush_of(group, loaded.partitions))
            assert await w.notes() == []
        assert await w.notes() == [1, 2, 3, 4, 5, 6]


async def test_writes_vanish_with_an_error(world: WorldMaker) -> None:
    """Nothing that a handler wrote is kept when its transaction raises."""
    async with world() as w:
        group, _ = await claimed(w)

        async def write_and_raise() -> None:
            async with w.work().begin(group, 1000.0) as transaction:
                await transaction.connection.execute(NOTE, 1)
                raise GiveUp

        with pytest.raises(GiveUp):
            await write_and_raise()
        assert await w.notes() == []
        await w.work().release([group.lease])


async def test_deferred_at_the_end_is_sent(world: WorldMaker) -> None:
    """What is deferred and never settled is sent before the commit; its error keeps the commit from happening."""
    async with world() as w:
        group, _ = await claimed(w)
        async with w.work().begin(group, 1000.0) as transaction:
            transaction.connection.defer(NOTE, 1)
        assert await w.notes() == [1]

        async def defer_refused() -> None:
            async with w.work().begin(group, 1000.0) as transaction:
                await transaction.connection.execute(NOTE, 2)
                transaction.connection.defer(NOTE, 0)

        with pytest.raises(Exception, match=r"notes|^$"):
            await defer_refused()
        assert await w.notes() == [1]
        await w.work().release([group.lease])


async def test_settle_raises_for_what_was_deferred(world: WorldMaker) -> None:
    """The error of a deferred statement shows at the settle, inside a savepoint that takes it back."""
    async with world() as w:
        group, loaded = await claimed(w)

        async def one_event(transaction: WorkTransaction, *numbers: int) -> None:
            async with transaction.savepoint():
                for number in numbers:
                    transaction.connection.defer(NOTE, number)
                await transaction.settle()

        async with w.work().begin(group, 1000.0) as transaction:
            await one_event(transaction, 1, 2)
            with pytest.raises(Exception, match=r"notes|^$"):
                await one_event(transaction, 3, 0, 4)
            await one_event(transaction, 5)
            await transaction.flush(flush_of(group, loaded.partitions))
        assert await w.notes() == [1, 2, 5]


async def test_savepoint_sends_what_was_deferred_before_it(world: WorldMaker) -> None:
    """Statements deferred before a savepoint stay when its body is taken back; those of the body are dropped."""
    async with world() as w:
        group, loaded = await claimed(w)

        async def defer_and_raise(transaction: WorkTransaction) -> None:
            async with transaction.savepoint():
                transaction.connection.defer(NOTE, 2)
                raise GiveUp

        async with w.work().begin(group, 1000.0) as transaction:
            transaction.connection.defer(NOTE, 1)
            with pytest.raises(GiveUp):
                await defer_and_raise(transaction)
            await transaction.flush(flush_of(group, loaded.partitions))
        assert await w.notes() == [1]


async def test_savepoint_ends_with_what_its_body_deferred(world: WorldMaker) -> None:
    """What the body deferred is sent before the savepoint ends, so that its error belongs to the body."""
    async with world() as w:
        group, loaded = await claimed(w)

        async def defer_refused(transaction: WorkTransaction) -> None:
            async with transaction.savepoint():
                transaction.connection.defer(NOTE, 0)

        async with w.work().begin(group, 1000.0) as transaction:
            with pytest.raises(Exception, match=r"notes|^$"):
                await defer_refused(transaction)
            await transaction.flush(flush_of(group, loaded.partitions))
        assert await w.notes() == []


async def test_failed_statement_spoils_the_transaction(world: WorldMaker) -> None:
    """A handler that swallows the error of a statement cannot go on: the transaction is aborted."""
    async with world() as w:
        group, loaded = await claimed(w)

        async def swallow() -> None:
            async with w.work().begin(group, 1000.0) as transaction:
                await transaction.connection.execute(NOTE, 1)
                with pytest.raises(Exception, match=r"notes|^$"):
                    await transaction.connection.execute(NOTE, 0)
                await transaction.flush(flush_of(group, loaded.partitions))

        with pytest.raises(TransactionAborted):
            await swallow()
        assert await w.notes() == []
        await w.work().release([group.lease])


async def test_commit_of_a_spoiled_transaction_says_so(world: WorldMaker) -> None:
    """A block that ends normally after a failed statement has stored nothing, and must not look as if it had."""
    async with world() as w:
        group, _ = await claimed(w)

        async def swallow() -> None:
            async with w.work().begin(group, 1000.0) as transaction:
                with pytest.raises(Exception, match=r"notes|^$"):
                    await transaction.connection.execute(NOTE, 0)

        with pytest.raises(TransactionAborted):
            await swallow()
        await w.work().release([group.lease])


async def test_savepoint_tells_of_a_swallowed_error(world: WorldMaker) -> None:
    """A body that goes on after a statement of its own has failed is told so, and nothing of it is kept; what came
    before it can still be flushed.
    """
    async with world() as w:
        group, loaded = await claimed(w)

        async def swallow(transaction: WorkTransaction) -> None:
            async with transaction.savepoint():
                await transaction.connection.execute(NOTE, 2)
                with pytest.raises(Exception, match=r"notes|^$"):
                    await transaction.connection.execute(NOTE, 0)

        async with w.work().begin(group, 1000.0) as transaction:
            await transaction.connection.execute(NOTE, 1)
            with pytest.raises(NotAllowed, match="has failed, and the handler has gone on"):
                await swallow(transaction)
            await transaction.flush(flush_of(group, loaded.partitions))
        assert await w.notes() == [1]


async def test_reads_answer_in_three_forms(world: WorldMaker) -> None:
    """All rows, the first row, or one column of it; None where nothing is found."""
    async with world() as w:
        group, loaded = await claimed(w)
        async with w.work().begin(group, 1000.0) as transaction:
            db = transaction.connection
            assert [row["n"] for row in await db.fetch(ANSWER, 41)] == [41, 42]
            assert (await db.fetchrow(ANSWER, 42))["n"] == 42
            assert await db.fetchrow(ANSWER, 43) is None
            assert await db.fetchval(ANSWER, 41) == 41
            assert await db.fetchval(ANSWER, 41, column="n") == 41
            assert await db.fetchval(ANSWER, 43) is None
            await transaction.flush(flush_of(group, loaded.partitions))


@pytest.mark.parametrize(
    "statement",
    ["commit", " ROLLBACK", "end;", "begin", "start transaction", "-- why\nabort", "prepare transaction 'x'"],
)
async def test_handler_cannot_end_the_transaction(world: WorldMaker, statement: str) -> None:
    """Transaction control is refused, awaited or deferred; savepoints of the handler's own are not."""
    async with world() as w:
        group, loaded = await claimed(w)
        async with w.work().begin(group, 1000.0) as transaction:
            db = transaction.connection
            with pytest.raises(NotAllowed):
                await db.execute(statement)
            with pytest.raises(NotAllowed):
                db.defer(statement)
            await db.execute("savepoint mine")
            await db.execute(NOTE, 1)
            await db.execute("rollback to savepoint mine")
            await transaction.flush(flush_of(group, loaded.partitions))


async def test_connection_ends_with_its_transaction(world: WorldMaker) -> None:
    """A handler that keeps its connection cannot use it afterwards."""
    async with world() as w:
        group, loaded = await claimed(w)
        async with w.work().begin(group, 1000.0) as transaction:
            await transaction.flush(flush_of(group, loaded.partitions))
        with pytest.raises(NotAllowed):
            await transaction.connection.execute(NOTE, 1)
        with pytest.raises(NotAllowed):
            transaction.connection.defer(NOTE, 1)


async def test_stale_owner_writes_nothing(world: WorldMaker) -> None:
    """Without the lease no transaction opens, so no statement of a stale owner reaches the read model."""
    async with world() as w:
        group, _ = await claimed(w)
        await w.advance(1100.0)
        await w.work(2).take_over()

        async def write() -> None:
            async with w.work().begin(group, 1000.0) as transaction:
                await transaction.connection.execute(NOTE, 1)

        with pytest.raises(LeaseLost):
            await write()
        assert await w.notes() == []


async def test_idle_owner_is_ended(world: WorldMaker) -> None:
    """An owner that is idle in its transaction for too long is ended: nothing of it is kept, its lease can go."""
    async with world() as w:
        group, _ = await claimed(w)

        async def stall() -> None:
            async with w.work().begin(group, 0.3) as transaction:
                await transaction.connection.execute(NOTE, 1)
                await w.idle(1.0)
                await w.advance(1100.0)
                assert [taken.lease for taken in await w.work(2).take_over()] == [group.lease]
                await transaction.connection.execute(NOTE, 2)

        with pytest.raises(HandlerTimeout):
            await stall()
        assert await w.notes() == []


async def test_hook_statements_commit_one_by_one(world: WorldMaker) -> None:
    """What a hook has done stays when it raises later; what it has only deferred by then is dropped."""
    async with world() as w:

        async def fail_in_hook() -> None:
            async with w.hooks.connection() as db:
                await db.execute(NOTE, 1)
                assert await w.notes() == [1]
                db.defer(NOTE, 2)
                raise GiveUp

        with pytest.raises(GiveUp):
            await fail_in_hook()
        assert await w.notes() == [1]
        async with w.hooks.connection() as db:
            db.defer(NOTE, 3)
        assert await w.notes() == [1, 3]
        with pytest.raises(NotAllowed):
            await db.execute(NOTE, 4)


UNAWAITED = {
    "execute": lambda db: db.execute(NOTE, 9),
    "executemany": lambda db: db.executemany(NOTE, [(9,)]),
    "fetch": lambda db: db.fetch(NOTE, 9),
    "fetchrow": lambda db: db.fetchrow(NOTE, 9),
    "fetchval": lambda db: db.fetchval(NOTE, 9),
}


@pytest.mark.parametrize("method", list(UNAWAITED))
async def test_a_call_that_was_not_awaited_fails_the_savepoint(world: WorldMaker, method: str) -> None:
    """The body is told which call it forgot, and nothing of it is kept; what came before and after is."""
    async with world() as w:
        group, loaded = await claimed(w)

        async def one_event(transaction: WorkTransaction, number: int, *, forgets: bool) -> None:
            async with transaction.savepoint():
                await transaction.connection.execute(NOTE, number)
                if forgets:
                    UNAWAITED[method](transaction.connection)

        async with w.work().begin(group, 1000.0) as transaction:
            await one_event(transaction, 1, forgets=False)
            with pytest.raises(NotAllowed, match=rf"^{method}\('insert into notes.*never awaited.*await it"):
                await one_event(transaction, 2, forgets=True)
            await one_event(transaction, 3, forgets=False)
            await transaction.flush(flush_of(group, loaded.partitions))
        assert await w.notes() == [1, 3]


@pytest.mark.parametrize("end", ["settle", "flush", "commit"])
async def test_nothing_commits_beside_a_call_that_was_not_awaited(world: WorldMaker, end: str) -> None:
    """Without a savepoint the whole transaction is refused, at the latest when it would commit."""
    async with world() as w:
        group, loaded = await claimed(w)

        async def forget() -> None:
            async with w.work().begin(group, 1000.0) as transaction:
                await transaction.connection.execute(NOTE, 1)
                transaction.connection.execute(NOTE, 2)  # type: ignore[unused-coroutine]
                if end == "settle":
                    await transaction.settle()
                elif end == "flush":
                    await transaction.flush(flush_of(group, loaded.partitions))

        with pytest.raises(NotAllowed, match="never awaited"):
            await forget()
        assert await w.notes() == []
        await w.work().release([group.lease])


async def test_the_bodys_own_error_outranks_what_it_forgot(world: WorldMaker) -> None:
    """A body that raises is not told of its calls too, and the next one is not charged with them."""
    async with world() as w:
        group, loaded = await claimed(w)

        async def forget_and_raise(transaction: WorkTransaction) -> None:
            async with transaction.savepoint():
                transaction.connection.execute(NOTE, 1)  # type: ignore[unused-coroutine]
                raise GiveUp

        async with w.work().begin(group, 1000.0) as transaction:
            with pytest.raises(GiveUp):
                await forget_and_raise(transaction)
            await transaction.flush(flush_of(group, loaded.partitions))


async def test_calls_in_tasks_count_when_they_are_awaited(world: WorldMaker) -> None:
    """A call made now and awaited later, alone, in a task or with a time limit, is a call like any other."""
    async with world() as w:
        group, loaded = await claimed(w)
        async with w.work().begin(group, 1000.0) as transaction:
            async with transaction.savepoint():
                db: Any = transaction.connection
                later = db.execute(NOTE, 2)
                await db.execute(NOTE, 1)
                await later
                await asyncio.create_task(db.execute(NOTE, 3))
                await asyncio.wait_for(db.execute(NOTE, 4), 10)
                await asyncio.gather(db.execute(NOTE, 5))
            await transaction.flush(flush_of(group, loaded.partitions))
        assert await w.notes() == [1, 2, 3, 4, 5]


async def test_a_hook_is_told_what_it_forgot(world: WorldMaker) -> None:
    """What it has done before stays, and what it deferred is not sent."""
    async with world() as w:

        async def forget() -> None:
            async with w.hooks.connection() as db:
                await db.execute(NOTE, 1)
                db.defer(NOTE, 2)
                db.execute(NOTE, 3)  # type: ignore[unused-coroutine]

        with pytest.raises(NotAllowed, match="never awaited"):
            await forget()
        assert await w.notes() == [1]
