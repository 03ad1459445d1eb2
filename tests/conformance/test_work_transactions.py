"""The lanes' port: transactions behind the fence of a lease, their savepoints, and groups done one by one."""

import pytest

from headrace.domain.errors import HeadraceError
from headrace.ports.work import FlushMode, WorkTransaction
from support.at_work import seen, worked_on
from support.worlds import WorldMaker, by_key, failure_of, flush_of


class Refused(Exception):
    """A handler's own error."""


async def test_transaction_writes_all_at_its_end(world: WorldMaker) -> None:
    """Flush, failure and slowness of one transaction appear together when it ends, and not before."""
    async with world() as w:
        _, group, loaded = await worked_on(w, a=1, b=1, c=1, d=1)
        found = by_key(loaded)
        before = await seen(w)
        async with w.work().begin(group, 1000.0) as transaction:
            assert await transaction.fail(failure_of(group, found["a"])) == 1
            await transaction.slow(found["b"].part, 1000.0)
            flushed = await transaction.flush(flush_of(group, [found["c"]], FlushMode.PART))
            assert flushed.drained == 1
            assert await seen(w) == before
        after = await seen(w)
        assert after.ready == {
            ("orders", "a"): (1, 1, 1000.0, None, 1, 0),
            ("orders", "b"): (1, 2, 1000.0, None, 0, 0),
            ("orders", "d"): (1, 4, "due", group.lease, 0, 0),
        }


async def test_transaction_that_raises_writes_nothing(world: WorldMaker) -> None:
    """An error that leaves the block takes everything back, and the lease is still there."""
    async with world() as w:
        _, group, loaded = await worked_on(w, a=1, b=1)
        before = await seen(w)

        async def flush_and_raise() -> None:
            async with w.work().begin(group, 1000.0) as transaction:
                await transaction.flush(flush_of(group, loaded.partitions))
                raise Refused

        with pytest.raises(Refused):
            await flush_and_raise()
        assert await seen(w) == before
        await w.work().flush(flush_of(group, loaded.partitions))


async def test_savepoint_takes_back_its_body_only(world: WorldMaker) -> None:
    """An error inside a savepoint undoes what was done in it; the transaction goes on before it."""
    async with world() as w:
        _, group, loaded = await worked_on(w, a=1, b=1)
        found = by_key(loaded)

        async def slow_and_raise(transaction: WorkTransaction) -> None:
            async with transaction.savepoint():
                await transaction.slow(found["b"].part, 1000.0)
                raise Refused

        async with w.work().begin(group, 1000.0) as transaction:
            await transaction.slow(found["a"].part, 1000.0)
            with pytest.raises(Refused):
                await slow_and_raise(transaction)
            async with transaction.savepoint():
                await transaction.flush(flush_of(group, [found["b"]]))
        after = await seen(w)
        assert after.ready == {("orders", "a"): (1, 1, 1000.0, None, 0, 0)}
        assert after.leases == {}


async def test_refusal_of_the_protocol_inside_a_savepoint(world: WorldMaker) -> None:
    """A write that the protocol refuses can be taken back to a savepoint as well."""
    async with world() as w:
        _, group, loaded = await worked_on(w, a=1, b=1)
        found = by_key(loaded)
        async with w.work().begin(group, 1000.0) as transaction:
            await transaction.slow(found["a"].part, 1000.0)
            with pytest.raises(HeadraceError, match="ready row"):
                async with transaction.savepoint():
                    await transaction.slow(found["a"].part, 1000.0)
            await transaction.flush(flush_of(group, [found["b"]]))
        assert (await seen(w)).ready == {("orders", "a"): (1, 1, 1000.0, None, 0, 0)}


async def test_group_done_one_by_one(world: WorldMaker) -> None:
    """Under one lease each member gets a transaction of its own; one fails, the others are flushed."""
    async with world() as w:
        orders, group, loaded = await worked_on(w, a=1, b=2, c=1)
        for partition in loaded.partitions:
            async with w.work().begin(group, 1000.0) as transaction:
                if partition.key == "b":
                    await transaction.flush(flush_of(group, [partition], FlushMode.KEEP, count=1))
                    await transaction.fail(failure_of(group, partition, position=3))
                else:
                    await transaction.flush(flush_of(group, [partition], FlushMode.PART))
        await w.work().release([group.lease])
        after = await seen(w)
        assert after.ready == {("orders", "b"): (1, 3, 1000.0, None, 1, 0)}
        assert after.counters == {("orders", 0): (3, 2, 0, 0, 0)}
        assert await w.claim(orders) is None


async def test_events_before_the_failing_one_are_kept(world: WorldMaker) -> None:
    """Flush of what went well and the failure of the next event commit together."""
    async with world() as w:
        _, group, loaded = await worked_on(w, a=3)
        (partition,) = loaded.partitions
        async with w.work().begin(group, 1000.0) as transaction:
            await transaction.flush(flush_of(group, [partition], FlushMode.KEEP, count=2))
            await transaction.fail(failure_of(group, partition, position=3))
        after = await seen(w)
        assert after.partitions == {("orders", "a"): (2, None)}
        assert after.inbox == {("orders", "a"): (3,)}
        assert after.ready == {("orders", "a"): (1, 3, 1000.0, None, 1, 0)}


async def test_route_between_flush_and_commit_loses_nothing(world: WorldMaker) -> None:
    """Events routed around the end of a transaction keep their key awake."""
    async with world() as w:
        orders, group, loaded = await worked_on(w, a=1)
        async with w.work().begin(group, 1000.0) as transaction:
            await w.append("a", "X")
            await w.route(orders)
            flushed = await transaction.flush(flush_of(group, loaded.partitions))
            assert flushed.drained == 0
        assert await w.handle_all(orders) == [2]
