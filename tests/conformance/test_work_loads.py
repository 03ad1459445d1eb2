"""The lanes' port: what a load gives of a claimed group, within its budgets; held keys and vanished events."""

import pytest

from headrace.domain.subscription import Status
from headrace.testing.events import new
from support.at_work import with_keys
from support.observed import observe
from support.worlds import WorldMaker, by_key, flush_of, positions_of


async def test_load_returns_inboxed_events_in_order(world: WorldMaker) -> None:
    """A load holds the events of each key in position order, seen as that key's, and where the key stands."""
    async with world() as w:
        orders = await w.subscribe()
        await w.appender.append([("a", new("X", 1)), ("b", new("X", 2)), ("a", new("Y", 3))])
        await w.route(orders)
        loaded = await w.load(await w.claimed(orders))

        assert positions_of(loaded) == {"a": [1, 3], "b": [2]}
        a = by_key(loaded)["a"]
        assert (a.position, a.attempts, a.takeovers, a.vanished) == (0, 0, 0, ())
        assert [(event.data, event.key, event.stream) for event in a.events] == [(1, "a", "a"), (3, "a", "a")]
        assert {event.subscription for event in a.events} <= {"", "orders"}
        assert (loaded.held, loaded.standing) == ((), False)


async def test_load_sees_what_arrived_after_the_claim(world: WorldMaker) -> None:
    """Events that were routed between claim and load are loaded with the others."""
    async with world() as w:
        orders = await with_keys(w, "a")
        group = await w.claimed(orders)
        await w.append("a", "X")
        await w.route(orders)
        assert positions_of(await w.load(group)) == {"a": [1, 2]}


async def test_load_gives_at_most_limit_of_a_key(world: WorldMaker) -> None:
    """`limit` bounds each key by itself; the first events come."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X", "X", "X")
        await w.append("b", "X")
        await w.route(orders)
        assert positions_of(await w.load(await w.claimed(orders), limit=2)) == {"a": [1, 2], "b": [4]}


async def test_load_keeps_to_its_budgets_together(world: WorldMaker) -> None:
    """Events and bytes bound the whole load; of every loaded key the first events come, without a gap."""
    async with world() as w:
        orders = await w.subscribe()
        for stream in "abcd":
            await w.append(stream, "X", "X", "X")
        await w.route(orders)
        group = await w.claimed(orders)
        first_of = {"a": [1, 2, 3], "b": [4, 5, 6], "c": [7, 8, 9], "d": [10, 11, 12]}

        for bounded in (await w.load(group, max_events=5), await w.load(group, max_bytes=20)):
            found = positions_of(bounded)
            assert 1 <= sum(map(len, found.values())) < 12
            assert all(found[key] == first_of[key][: len(found[key])] for key in found)
        assert sum(map(len, positions_of(await w.load(group, max_events=5)).values())) == 5


async def test_one_large_event_is_loaded_alone(world: WorldMaker) -> None:
    """An event larger than the byte budget is loaded, so that it cannot block its key for ever."""
    async with world() as w:
        orders = await w.subscribe()
        await w.appender.append([("a", new("L", "x" * 5000)), ("a", new("L", "x" * 5000))])
        await w.route(orders)
        assert positions_of(await w.load(await w.claimed(orders), max_bytes=100)) == {"a": [1]}


@pytest.mark.parametrize("status", [Status.PAUSED, Status.DETACHED])
async def test_load_looks_at_the_status_after_the_claim(world: WorldMaker, status: Status) -> None:
    """A claim looks at no status; the load of a standing subscription gives nothing, and the lease goes back."""
    async with world() as w:
        orders = await with_keys(w, "a")
        await w.set_status("orders", status)
        group = await w.claimed(orders)
        loaded = await w.load(group)
        assert (loaded.standing, loaded.partitions) == (True, ())
        await w.work().release([group.lease])
        assert observe(await w.image()).ready == {("orders", "a"): (1, 1, "due", None, 0, 0)}


async def test_held_keys_leave_their_group(world: WorldMaker) -> None:
    """A key held after the claim is not loaded but named; it waits without a due time and the others go on."""
    async with world() as w:
        orders = await with_keys(w, "a", "b")
        group = await w.claimed(orders)
        await w.set_hold(orders, "a", "paused")
        loaded = await w.load(group)

        assert positions_of(loaded) == {"b": [2]}
        assert loaded.held == (await w.part(orders, "a"),)
        assert await w.work().hold(group.lease, loaded.held) == 1
        assert observe(await w.image()).ready[("orders", "a")] == (1, 1, None, None, 0, 0)
        await w.work().flush(flush_of(group, loaded.partitions))
        assert await w.claim(orders) is None
        await w.set_hold(orders, "a", None)
        assert await w.handle_all(orders) == [1]


async def test_key_freed_between_load_and_hold_stays(world: WorldMaker) -> None:
    """Holding decides by what the partition says then, so a key freed meanwhile does not fall asleep."""
    async with world() as w:
        orders = await with_keys(w, "a")
        group = await w.claimed(orders)
        await w.set_hold(orders, "a", "paused")
        loaded = await w.load(group)
        await w.set_hold(orders, "a", None)
        assert await w.work().hold(group.lease, loaded.held) == 0
        await w.work().release([group.lease])
        assert await w.handle_all(orders) == [1]


async def test_key_held_before_its_first_event(world: WorldMaker) -> None:
    """Holding a key that has no partition creates it held; its events wait."""
    async with world() as w:
        orders = await w.subscribe()
        await w.set_hold(orders, "a", "paused")
        await w.append("a", "X")
        await w.route(orders)
        group = await w.claimed(orders)
        loaded = await w.load(group)
        assert (loaded.partitions, len(loaded.held)) == ((), 1)
        await w.work().hold(group.lease, loaded.held)
        await w.work().release([group.lease])
        assert observe(await w.image()).ready == {("orders", "a"): (1, 1, None, None, 0, 0)}


async def test_vanished_events_are_named(world: WorldMaker) -> None:
    """An inbox entry whose event is gone is loaded as vanished, in the budget of its key, and flushed as skipped."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X", "X", "X")
        await w.append("b", "X")
        await w.route(orders)
        await w.delete_event(1)
        await w.delete_event(3)
        await w.delete_event(4)
        group = await w.claimed(orders)
        loaded = await w.load(group)

        assert positions_of(loaded) == {"a": [2], "b": []}
        assert by_key(loaded)["a"].vanished == (1, 3)
        assert by_key(loaded)["b"].vanished == (4,)
        flushed = await w.work().flush(flush_of(group, loaded.partitions))
        assert flushed.drained == 2
        assert observe(await w.image()).counters == {("orders", 0): (1, 2, 3, 0, 0)}
