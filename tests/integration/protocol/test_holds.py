"""Holding one key by its address, and letting it go, beside routers and workers."""

import pytest

from headrace.domain.errors import NotAllowed
from headrace.domain.ids import PartitionKey
from headrace.ports.work import FailureState
from headrace.store.holds import hold_key, holder_of, unhold_key
from support.databases import Database
from support.rig import rig
from support.worlds import by_key, declared, failure_of, positions_of

K = PartitionKey("k")


async def test_held_key_is_not_worked_on(database: Database) -> None:
    """What arrives for a held key waits in order; the other keys go on; afterwards everything is handled."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        await r.world.append("k", "X")
        await r.world.append("other", "X")
        await r.world.route(orders)
        part = await hold_key(r.pool, orders.run, K)
        assert await r.world.handle_all(orders) == [2]
        await r.world.append("k", "X")
        await r.world.route(orders)
        assert await r.world.claim(orders) is None
        assert await r.admin.fetchval("select hold from headrace.partitions where id = $1", part) == "paused"
        assert await unhold_key(r.pool, orders.run, K)
        assert await r.world.handle_all(orders) == [1, 3]
        assert not await unhold_key(r.pool, orders.run, K)


async def test_key_without_events_can_be_held(database: Database) -> None:
    """A key that has no partition is made held, so that its first event does not make it active."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        part = await hold_key(r.pool, orders.run, K)
        await r.world.append("k", "X")
        await r.world.route(orders)
        group = await r.world.claimed(orders)
        assert (await r.world.load(group)).held == (part,)
        assert await r.world.work().hold(group.lease, [part]) == 1
        await r.world.work().release([group.lease])
        assert await r.world.claim(orders) is None


async def test_hold_while_a_worker_has_the_key(database: Database) -> None:
    """A leased key is finished by its owner, who can be asked for; the hold is there for the next load."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        await r.world.append("k", "X", "X")
        await r.world.route(orders)
        group = await r.world.claimed(orders)
        loaded = await r.world.load(group)
        part = await hold_key(r.pool, orders.run, K)
        assert await holder_of(r.pool, part) == "worker-1"
        assert positions_of(loaded) == {"k": [1, 2]}
        await r.world.work().release([group.lease])
        assert await holder_of(r.pool, part) is None
        again = await r.world.claimed(orders)
        assert (await r.world.load(again)).held == (part,)
        await r.world.work().hold(again.lease, [part])
        await r.world.work().release([again.lease])


@pytest.mark.parametrize(("state", "delay"), [(FailureState.WAITING, None), (FailureState.PARKED, 1000.0)])
async def test_failing_key_goes_back_to_its_own_next_try(
    database: Database, state: FailureState, delay: float | None
) -> None:
    """Letting a key go does not resume it: one that is parked, or waits for a person, does so again."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        await r.world.append("k", "X")
        await r.world.route(orders)
        group = await r.world.claimed(orders)
        loaded = by_key(await r.world.load(group))["k"]
        await r.world.work().fail(failure_of(group, loaded, state=state, delay=delay))
        await r.world.work().release([group.lease])
        await hold_key(r.pool, orders.run, K)
        assert await unhold_key(r.pool, orders.run, K)
        assert await r.world.claim(orders) is None
        assert (await r.world.failures.resume(None, None, "me", "fixed")).resumed == 1
        assert await r.world.handle_all(orders) == [1]


async def test_whole_log_can_be_held(database: Database) -> None:
    """The one key of an unpartitioned subscription is held like any other."""
    async with rig(database) as r:
        log = await r.world.subscribe("log", None)
        await r.world.append("k", "X")
        await hold_key(r.pool, log.run, PartitionKey(""))
        assert await r.world.claim_log(log) is None
        await unhold_key(r.pool, log.run, PartitionKey(""))
        group = await r.world.claim_log(log)
        assert group is not None
        await r.world.work().release([group.lease])


async def test_key_of_nothing_cannot_be_held(database: Database) -> None:
    """A subscription that was not set up has no cursor that could be locked: the message names the fix."""
    async with rig(database) as r:
        (new,) = await r.world.catalog.declare([declared("new")])
        with pytest.raises(NotAllowed, match="headrace setup"):
            await hold_key(r.pool, new.run, K)
