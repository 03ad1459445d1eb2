"""The lanes' port: leases are released, renewed and taken over; suspects go alone; a stale owner is refused."""

import asyncio

import pytest

from headrace.domain.errors import LeaseLost
from headrace.domain.subscription import Subscription
from support.at_work import keys_of, seen, with_keys, worked_on
from support.observed import observe
from support.worlds import World, WorldMaker, failure_of, flush_of


async def test_release_gives_everything_back(world: WorldMaker) -> None:
    """Released keys keep their place in the queue, and nothing counts as a take-over."""
    async with world() as w:
        orders = await with_keys(w, "a", "b", "c")
        group = await w.claimed(orders, parts=2)
        await w.work().release([group.lease, w.new_lease()])
        assert observe(await w.image()).leases == {}
        assert await keys_of(w, orders, worker=2, parts=1) == {"a"}
        assert {row[5] for row in observe(await w.image()).ready.values()} == {0}


async def test_only_the_owner_releases(world: WorldMaker) -> None:
    """Another worker cannot give a lease back."""
    async with world() as w:
        orders = await with_keys(w, "a")
        group = await w.claimed(orders)
        await w.work(2).release([group.lease])
        assert list(observe(await w.image()).leases) == [group.lease]


async def test_release_waits_for_the_open_transaction(world: WorldMaker) -> None:
    """A lease cannot go while a transaction stands behind its fence: what that one flushes is not done again."""
    async with world() as w:
        orders = await with_keys(w, "a")
        group = await w.claimed(orders)
        loaded = await w.load(group)
        async with w.work().begin(group, 1000.0) as transaction:
            release = asyncio.create_task(w.work().release([group.lease]))
            done, _ = await asyncio.wait([release], timeout=0.2)
            assert not done
            await transaction.flush(flush_of(group, loaded.partitions))
        await release
        seen = observe(await w.image())
        assert (seen.ready, seen.leases) == ({}, {})


async def test_renewal_extends_own_leases_that_exist(world: WorldMaker) -> None:
    """Own leases get a new expiry, an expired one too; unknown ones and another worker's are not renewed."""
    async with world() as w:
        orders = await with_keys(w, "a", "b")
        mine = await w.claimed(orders, parts=1, ttl=1000.0)
        other = await w.claimed(orders, worker=2, ttl=1000.0)
        await w.advance(2000.0)
        assert await w.work().renew([mine.lease, other.lease, w.new_lease()], 3000.0) == {mine.lease}
        seen = observe(await w.image())
        assert seen.leases[mine.lease][6] == 3000.0
        assert seen.leases[other.lease][6] == -1000.0
        assert await w.work().renew([], 3000.0) == set()


async def test_renewal_goes_past_an_open_transaction(world: WorldMaker) -> None:
    """The fence does not make renewal wait."""
    async with world() as w:
        orders = await with_keys(w, "a")
        group = await w.claimed(orders)
        async with w.work().begin(group, 1000.0):
            assert await w.work().renew([group.lease], 3000.0) == {group.lease}


async def test_take_over_frees_expired_leases(world: WorldMaker) -> None:
    """An expired lease is taken by anyone: its keys are due again and remember it, its owner is refused."""
    async with world() as w:
        orders = await with_keys(w, "a", "b")
        dead = await w.claimed(orders, parts=1, ttl=1000.0)
        alive = await w.claimed(orders, ttl=3000.0)
        assert await w.work(2).take_over() == []
        await w.advance(1100.0)
        (taken,) = await w.work(2).take_over()

        assert (taken.lease, taken.run, taken.worker, taken.parts) == (dead.lease, orders.run, "worker-1", 1)
        seen = observe(await w.image())
        assert list(seen.leases) == [alive.lease]
        assert seen.ready[("orders", "a")] == (1, 1, "due", None, 0, 1)
        with pytest.raises(LeaseLost):
            async with w.work().begin(dead, 1000.0):
                pass
        assert await w.work().renew([dead.lease], 1000.0) == set()
        group = await w.claimed(orders, worker=2)
        assert [part.takeovers for part in group.parts] == [1]


async def test_take_over_passes_by_an_open_transaction(world: WorldMaker) -> None:
    """A stalled owner whose transaction is open still commits; its lease is taken only without one."""
    async with world() as w:
        orders = await with_keys(w, "a")
        group = await w.claimed(orders, ttl=1000.0)
        loaded = await w.load(group)
        async with w.work().begin(group, 100_000.0) as transaction:
            await w.advance(2000.0)
            assert await w.work(2).take_over() == []
            await transaction.flush(flush_of(group, loaded.partitions))
        assert await w.work(2).take_over() == []
        assert observe(await w.image()).ready == {}


async def kill_owner(w: World, subscription: Subscription, times: int) -> None:
    """Let a worker die with everything that is due, so many times."""
    for _ in range(times):
        await w.claimed(subscription, ttl=1000.0)
        await w.advance(1100.0)
        await w.work().take_over()


async def test_a_lease_that_only_waited_blames_no_key(world: WorldMaker) -> None:
    """After two take-overs a further one counts nothing; an owner that begins with the key counts itself, and what is
    flushed sets the count back.
    """
    async with world() as w:
        orders = await with_keys(w, "a")
        await kill_owner(w, orders, times=5)
        group = await w.claimed(orders)
        assert [part.takeovers for part in group.parts] == [2]
        await w.work().suspect(group.lease, group.parts[0].part)
        await w.advance(100_000.0)
        await w.work().take_over()
        group = await w.claimed(orders)
        assert [part.takeovers for part in group.parts] == [3]
        with pytest.raises(LeaseLost):
            await w.work(2).suspect(group.lease, group.parts[0].part)
        await w.work().suspect(group.lease, group.parts[0].part)
        await w.work().absolve(group.lease, group.parts[0].part)
        assert observe(await w.image()).ready[("orders", "a")][5] == 3
        await w.append("a", "X")
        await w.route(orders)
        await w.work().suspect(group.lease, group.parts[0].part)
        loaded = await w.load(group, limit=1)
        await w.work().flush(flush_of(group, loaded.partitions))
        assert observe(await w.image()).ready[("orders", "a")][5] == 0


async def test_key_that_outlived_two_owners_goes_alone(world: WorldMaker) -> None:
    """From the second take-over on a key is claimed alone, so that it cannot take others down with it."""
    async with world() as w:
        orders = await with_keys(w, "a", "b")
        await kill_owner(w, orders, times=1)
        assert await keys_of(w, orders) == {"a", "b"}
        await w.advance(1100.0)
        await w.work().take_over()
        await w.append("c", "X")
        await w.route(orders)
        assert await keys_of(w, orders) == {"a"}
        assert await keys_of(w, orders) == {"b"}
        assert await keys_of(w, orders) == {"c"}


async def test_suspect_behind_others_is_left_out_of_their_group(world: WorldMaker) -> None:
    """A group that starts with a healthy key takes no suspect along."""
    async with world() as w:
        orders = await with_keys(w, "bad")
        await kill_owner(w, orders, times=2)
        group = await w.claimed(orders)
        await w.append("good-1", "X")
        await w.append("good-2", "X")
        await w.route(orders)
        await w.work().slow(group.lease, group.parts[0].part, 1000.0)
        await w.work().release([group.lease])
        await kill_owner_of(w, orders, "bad")
        assert await keys_of(w, orders) == {"good-1", "good-2"}


async def kill_owner_of(w: World, subscription: Subscription, key: str) -> None:
    """Let a worker die twice with one key that is due later than all others."""
    await w.advance(1100.0)
    others = await w.claimed(subscription, parts=2)
    for _ in range(2):
        group = await w.claimed(subscription, ttl=500.0)
        assert [part.part for part in group.parts] == [await w.part(subscription, key)]
        await w.advance(600.0)
        await w.work().renew([others.lease], 1000.0)
        await w.work().take_over()
    await w.work().release([others.lease])


async def test_success_clears_the_take_overs(world: WorldMaker) -> None:
    """A flush that leaves events behind takes the suspicion from the key."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X", "X")
        await w.route(orders)
        await kill_owner(w, orders, times=2)
        group = await w.claimed(orders)
        loaded = await w.load(group, limit=1)
        await w.work().flush(flush_of(group, loaded.partitions))
        assert observe(await w.image()).ready == {("orders", "a"): (1, 2, "due", None, 0, 0)}


async def test_flush_without_a_lease_is_refused(world: WorldMaker) -> None:
    """After a take-over the stale owner can neither flush nor fail, slow, hold or begin; nothing is changed."""
    async with world() as w:
        orders, group, loaded = await worked_on(w, a=1)
        await w.advance(1100.0)
        await w.work(2).take_over()
        before = await seen(w)
        (partition,) = loaded.partitions
        with pytest.raises(LeaseLost):
            await w.work().flush(flush_of(group, loaded.partitions))
        with pytest.raises(LeaseLost):
            await w.work().fail(failure_of(group, partition))
        with pytest.raises(LeaseLost):
            await w.work().slow(group.lease, partition.part, 1000.0)
        with pytest.raises(LeaseLost):
            await w.work().hold(group.lease, [partition.part])
        with pytest.raises(LeaseLost):
            async with w.work().begin(group, 1000.0):
                pass
        assert await seen(w) == before
        assert await w.handle_all(orders, worker=2) == [1]


async def test_lease_of_another_worker_is_no_fence(world: WorldMaker) -> None:
    """The owner is part of the fence: knowing a lease's id is not enough."""
    async with world() as w:
        _, group, loaded = await worked_on(w, a=1)
        with pytest.raises(LeaseLost):
            await w.work(2).flush(flush_of(group, loaded.partitions))
        await w.work().flush(flush_of(group, loaded.partitions))


async def test_expired_lease_still_flushes(world: WorldMaker) -> None:
    """Expiry only permits a take-over; while nobody takes the lease its owner may flush."""
    async with world() as w:
        _, group, loaded = await worked_on(w, a=1)
        await w.advance(5000.0)
        assert (await w.work().flush(flush_of(group, loaded.partitions))).drained == 1
