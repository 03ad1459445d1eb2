"""Keys held by their address: what waits for them sleeps, and goes on from where it was."""

import pytest

from headrace.domain.errors import NotAllowed
from headrace.ports.work import FailureState
from support.observed import observe
from support.worlds import WorldMaker, declared, failure_of


async def test_held_key_sleeps_and_others_go_on(world: WorldMaker) -> None:
    """A held key is never due, whatever arrives; freed, it goes on at once and in order."""
    async with world() as w:
        orders = await w.subscribe()
        for stream in ("a", "b"):
            await w.append(stream, "X")
        await w.route(orders)
        await w.set_hold(orders, "a", "paused")
        assert await w.handle_all(orders) == [2]
        await w.append("a", "X")
        await w.route(orders)
        await w.advance(100_000)
        assert await w.handle_all(orders) == []
        await w.set_hold(orders, "a", None)
        assert await w.handle_all(orders) == [1, 3]


@pytest.mark.parametrize(
    ("state", "delay", "due"),
    [
        (FailureState.BACKING_OFF, 2000.0, 2000.0),
        (FailureState.PARKED, 3000.0, 3000.0),
        (FailureState.WAITING, None, None),
    ],
)
async def test_freed_key_keeps_its_own_next_try(
    world: WorldMaker, state: FailureState, delay: float | None, due: float | None
) -> None:
    """A key that fails goes back to its retry, or to waiting for a person: freeing it is no resume."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X")
        await w.route(orders)
        group = await w.claimed(orders)
        loaded = await w.load(group)
        await w.work().fail(failure_of(group, loaded.partitions[0], state=state, delay=delay))
        await w.work().release([group.lease])
        await w.set_hold(orders, "a", "paused")
        assert observe(await w.image()).ready == {("orders", "a"): (1, 1, None, None, 1, 0)}
        await w.set_hold(orders, "a", None)
        assert observe(await w.image()).ready == {("orders", "a"): (1, 1, due, None, 1, 0)}


async def test_freeing_what_is_not_held_changes_nothing(world: WorldMaker) -> None:
    """A key that was not held keeps its due time, and one that does not exist is not made."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X")
        await w.route(orders)
        group = await w.claimed(orders)
        await w.work().slow(group.lease, group.parts[0].part, 2000.0)
        await w.work().release([group.lease])
        before = observe(await w.image())
        await w.set_hold(orders, "a", None)
        await w.set_hold(orders, "nobody", None)
        assert observe(await w.image()) == before


async def test_leased_key_is_left_to_its_owner(world: WorldMaker) -> None:
    """Holding and freeing a key that a lane has in its hands leaves lease and due time alone."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X")
        await w.route(orders)
        group = await w.claimed(orders)
        await w.set_hold(orders, "a", "paused")
        held = observe(await w.image())
        assert held.partitions == {("orders", "a"): (0, "paused")}
        assert held.ready == {("orders", "a"): (1, 1, "due", group.lease, 0, 0)}
        await w.set_hold(orders, "a", None)
        assert observe(await w.image()).ready == held.ready


async def test_key_of_a_new_subscription_cannot_be_held(world: WorldMaker) -> None:
    """Before set-up nothing is routed, so there is nothing to hold."""
    async with world() as w:
        (stored,) = await w.catalog.declare([declared("orders")])
        with pytest.raises(NotAllowed):
            await w.set_hold(stored, "a", "paused")
