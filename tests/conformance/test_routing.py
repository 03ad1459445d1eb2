"""The router's port: every wanted event once into the inbox of its partition, the cursor its fence."""

from collections.abc import Sequence
from typing import Any

import pytest

from headrace.domain.event import EventFilter
from headrace.domain.ids import MAX_KEY_BYTES, Position, Run
from headrace.domain.subscription import Status
from headrace.partitioning.keys import Bucket, Hashed, Stream, Tag
from headrace.ports.routing import RouteOutcome
from headrace.testing.events import new, stream_of
from support.observed import observe
from support.worlds import WorldMaker, flush_of

LONG = "k" * (MAX_KEY_BYTES + 1)
KEYS = ["", "A", "a", "é", "e\u0301", "🦊🦊", "אבג", "x" * MAX_KEY_BYTES, "é" * (MAX_KEY_BYTES // 2), " #%'\"\\ "]


def routes(*pairs: tuple[int, str]) -> Sequence[tuple[Position, str]]:
    """Return pairs for `store_routes`."""
    return [(Position(position), key) for position, key in pairs]


async def test_route_fills_inboxes_by_key(world: WorldMaker) -> None:
    """Each event lies in the inbox of its key, each key is ready once, and the cursor rests on the last row."""
    async with world() as w:
        orders = await w.subscribe()
        await w.appender.append([("a", new("X")), ("b", new("X")), ("a", new("X"))])
        result = await w.route(orders)
        seen = observe(await w.image())

        assert (result.outcome, result.position, result.complete, result.bad) == (RouteOutcome.ROUTED, 3, True, None)
        assert (result.routed, result.activated, result.created) == (3, 2, 2)
        assert seen.inbox == {("orders", "a"): (1, 3), ("orders", "b"): (2,)}
        assert seen.ready == {("orders", "a"): (2, 1, "due", None, 0, 0), ("orders", "b"): (1, 2, "due", None, 0, 0)}
        assert seen.cursors == {"orders": (3, 0, 3, 2, 2)}


async def test_more_for_a_waiting_key_only_raises_its_backlog(world: WorldMaker) -> None:
    """A key that is ready already stays where it is in the queue and keeps its first position."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X")
        await w.route(orders)
        await w.append("a", "X", "X")
        result = await w.route(orders)

        assert (result.routed, result.activated, result.created) == (2, 0, 0)
        assert observe(await w.image()).ready == {("orders", "a"): (3, 1, "due", None, 0, 0)}


async def test_route_does_not_wake_a_key_that_is_due_later(world: WorldMaker) -> None:
    """New events of a key that backs off or is held leave its due time alone."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X")
        await w.route(orders)
        await w.set_hold(orders, "a", "paused")
        await w.append("a", "X")
        await w.route(orders)

        assert observe(await w.image()).ready == {("orders", "a"): (2, 1, None, None, 0, 0)}


async def test_key_of_a_drained_partition_is_ready_again(world: WorldMaker) -> None:
    """A partition that ran dry keeps its row and is activated by the next event."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X")
        await w.route(orders)
        await w.handle_all(orders)
        await w.append("a", "X")
        result = await w.route(orders)

        assert (result.activated, result.created) == (1, 0)
        assert observe(await w.image()).ready == {("orders", "a"): (1, 2, "due", None, 0, 0)}


async def test_route_in_batches_is_complete_with_the_last_one(world: WorldMaker) -> None:
    """A batch that leaves wanted events behind says so, and the next one goes on after it."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", *["X"] * 5)
        results = [await w.route(orders, limit=2) for _ in range(3)]

        assert [result.position for result in results] == [2, 4, 5]
        assert [result.routed for result in results] == [2, 2, 1]
        assert [result.complete for result in results] == [False, False, True]


async def test_route_stays_at_or_below_the_horizon(world: WorldMaker) -> None:
    """Events above the horizon are not looked at; the cursor rests on a row, never on the horizon."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X", "X")
        await w.leave_hole()
        await w.leave_hole()
        await w.append("a", "X")
        result = await w.route(orders, upto=4)

        assert (result.position, result.routed, result.complete) == (2, 2, True)


async def test_cursor_passes_events_that_are_not_wanted(world: WorldMaker) -> None:
    """The cursor moves to the last row of any type, also when nothing matched; only wanted events are routed."""
    wanted = EventFilter(types=("Paid",))
    async with world() as w:
        orders = await w.subscribe(wanted=wanted)
        await w.append("a", "Placed", "Paid", "Seen")
        result = await w.route(orders, wanted=wanted)
        assert (result.position, result.routed) == (3, 1)
        await w.append("a", "Seen")
        result = await w.route(orders, wanted=wanted)
        assert (result.position, result.routed, result.complete) == (4, 0, True)
        assert observe(await w.image()).inbox == {("orders", "a"): (2,)}


async def test_nothing_new_moves_nothing(world: WorldMaker) -> None:
    """Routing at the head is complete and leaves the cursor."""
    async with world() as w:
        orders = await w.subscribe()
        assert (await w.route(orders)).complete
        await w.append("a", "X")
        await w.route(orders)
        result = await w.route(orders)
        assert (result.outcome, result.position, result.routed, result.complete) == (RouteOutcome.ROUTED, 1, 0, True)


async def test_events_without_a_key_are_passed_over(world: WorldMaker) -> None:
    """An event whose key is None is not for this subscriber, and the cursor goes on."""
    async with world() as w:
        courses = await w.subscribe("courses", Tag("course"))
        await w.append("a", "X", tags=["course:2", "course:10", "other:1"])
        await w.append("a", "X", tags=["other:1"])
        await w.append("b", "X", tags=["course:2"])
        result = await w.route(courses, Tag("course"))

        assert (result.position, result.routed, result.complete) == (3, 2, True)
        assert observe(await w.image()).inbox == {("courses", "10"): (1,), ("courses", "2"): (3,)}


@pytest.mark.parametrize("partition_by", [Bucket(Stream(), 3), Hashed(Stream()), Bucket(Tag("t"), 2)], ids=str)
async def test_built_in_keys_are_those_of_python(world: WorldMaker, partition_by: Any) -> None:
    """Whatever makes the key, the inbox is the one that the partitioner names."""
    async with world() as w:
        orders = await w.subscribe("orders", partition_by)
        for n in range(12):
            await w.append(f"s-{n % 5}", "X", tags=[f"t:{n % 4}"])
        await w.route(orders, partition_by)
        events = (await w.reader.read()).events
        expected: dict[tuple[str, str], tuple[int, ...]] = {}
        for event in events:
            place = ("orders", partition_by.key(event))
            expected[place] = (*expected.get(place, ()), event.position)

        assert observe(await w.image()).inbox == expected


async def test_unusual_keys_are_keys(world: WorldMaker) -> None:
    """Cases differ, composed and decomposed letters differ, and any text up to 1,000 bytes is a key."""
    async with world() as w:
        orders = await w.subscribe()
        for key in KEYS:
            await w.append(key, "X")
        result = await w.route(orders)

        assert (result.created, result.bad) == (len(KEYS), None)
        assert observe(await w.image()).inbox == {("orders", key): (n,) for n, key in enumerate(KEYS, start=1)}


async def test_route_stops_before_an_event_without_a_usable_key(world: WorldMaker) -> None:
    """What lies before it is routed, the cursor stays before it, and the report names position, type and fix."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X", "X")
        await w.append(LONG, "TooLong")
        await w.append("a", "X")
        result = await w.route(orders)

        assert (result.outcome, result.position, result.routed, result.complete) == (RouteOutcome.ROUTED, 2, 2, False)
        assert result.bad is not None
        assert (result.bad.position, result.bad.type) == (3, "TooLong")
        assert "position 3" in result.bad.problem
        assert "'TooLong'" in result.bad.problem
        assert "Hashed" in result.bad.problem
        again = await w.route(orders)
        assert (again.position, again.routed, again.bad) == (2, 0, result.bad)


async def test_bad_key_beyond_the_batch_is_not_reported_yet(world: WorldMaker) -> None:
    """A batch that ends before the bad event says nothing of it."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X", "X")
        await w.append(LONG, "TooLong")
        result = await w.route(orders, limit=2)
        assert (result.position, result.bad, result.complete) == (2, None, False)


async def test_hashed_takes_any_length(world: WorldMaker) -> None:
    """The fix that the report names works."""
    async with world() as w:
        orders = await w.subscribe("orders", Hashed(Stream()))
        await w.append(LONG, "TooLong")
        result = await w.route(orders, Hashed(Stream()))
        assert (result.routed, result.bad) == (1, None)


async def test_taken_cursor_is_busy_and_nothing_moves(world: WorldMaker) -> None:
    """While somebody else holds the cursor row, routing, storing and sweeping return at once."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X")
        async with w.cursor_taken(orders):
            assert (await w.route(orders)).outcome is RouteOutcome.BUSY
            stored = await w.routing.store_routes(orders.run, Position(0), Position(1), routes((1, "a")))
            assert stored.outcome is RouteOutcome.BUSY
            assert await w.routing.sweep(orders.run, 0.0, 10) == -1
        assert observe(await w.image()).cursors == {"orders": (0, 0, 0, 0, 0)}
        assert (await w.route(orders)).routed == 1


@pytest.mark.parametrize("status", [Status.PAUSED, Status.DETACHED, Status.FINISHED])
async def test_standing_subscription_is_not_routed(world: WorldMaker, status: Status) -> None:
    """Only a booting or active subscription is routed, in the store or through Python."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X")
        await w.set_status("orders", status)
        assert (await w.route(orders)).outcome is RouteOutcome.STANDING
        stored = await w.routing.store_routes(orders.run, Position(0), Position(1), routes((1, "a")))
        assert stored.outcome is RouteOutcome.STANDING
        read = await w.routing.read_unrouted(orders.run, EventFilter(), Position(1), 10, 10**6)
        assert read.outcome is RouteOutcome.STANDING
        assert observe(await w.image()).cursors == {"orders": (0, 0, 0, 0, 0)}


async def test_boot_target_limits_the_horizon(world: WorldMaker) -> None:
    """While booting nothing above the boot target is routed; when active the rest is."""
    async with world() as w:
        await w.append("a", "X", "X", "X")
        orders = await w.subscribe(boot_target=2)
        assert orders.status is Status.BOOTING
        result = await w.route(orders)
        assert (result.position, result.routed) == (2, 2)
        read = await w.routing.read_unrouted(orders.run, EventFilter(), Position(3), 10, 10**6)
        assert (list(read.events), read.last) == ([], 2)
        await w.handle_all(orders)
        assert await w.catalog.activate(orders.run)
        assert (await w.route(orders)).position == 3


async def test_read_unrouted_gives_wanted_events_after_the_cursor(world: WorldMaker) -> None:
    """A batch for Python starts after the cursor, holds wanted events alone and says how far it looked."""
    wanted = EventFilter(types=("X",))
    async with world() as w:
        orders = await w.subscribe(wanted=wanted, position=1)
        await w.append("a", "X", "X", "Y", "X", "Y")
        read = await w.routing.read_unrouted(orders.run, wanted, Position(5), 10, 10**6)
        assert (read.outcome, read.position) == (RouteOutcome.ROUTED, 1)
        assert [event.position for event in read.events] == [2, 4]
        assert (read.last, read.complete) == (5, True)
        first = await w.routing.read_unrouted(orders.run, wanted, Position(5), 1, 10**6)
        assert ([event.position for event in first.events], first.last, first.complete) == ([2], 2, False)
        below = await w.routing.read_unrouted(orders.run, wanted, Position(3), 10, 10**6)
        assert ([event.position for event in below.events], below.last, below.complete) == ([2], 3, True)


async def test_store_routes_does_what_route_does(world: WorldMaker) -> None:
    """Pairs made in Python become partitions, inbox entries and ready rows; the cursor moves to `last`."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("s", "X", "X", "X", "X")
        result = await w.routing.store_routes(
            orders.run, Position(0), Position(4), routes((1, "b"), (2, "a"), (3, "b"))
        )
        assert (result.outcome, result.position) == (RouteOutcome.ROUTED, 4)
        assert (result.routed, result.activated, result.created) == (3, 2, 2)
        assert observe(await w.image()).inbox == {("orders", "a"): (2,), ("orders", "b"): (1, 3)}


async def test_store_routes_without_pairs_moves_the_cursor(world: WorldMaker) -> None:
    """A batch of which nothing is for this subscriber still moves the cursor."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("s", "X", "X")
        result = await w.routing.store_routes(orders.run, Position(0), Position(2), [])
        assert (result.outcome, result.position, result.routed) == (RouteOutcome.ROUTED, 2, 0)
        assert observe(await w.image()).cursors == {"orders": (2, 0, 0, 0, 0)}


async def test_second_batch_of_one_read_is_thrown_away(world: WorldMaker) -> None:
    """The cursor's position is the fence of Python routers: a batch read before it moved stores nothing."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("s", "X", "X")
        await w.routing.store_routes(orders.run, Position(0), Position(1), routes((1, "a")))
        late = await w.routing.store_routes(orders.run, Position(0), Position(2), routes((1, "a"), (2, "a")))
        assert late.outcome is RouteOutcome.MOVED
        assert observe(await w.image()).inbox == {("orders", "a"): (1,)}


async def test_pass_over_moves_onto_the_next_wanted_event_only(world: WorldMaker) -> None:
    """Only the next wanted event can be passed; it never gets into an inbox."""
    wanted = EventFilter(types=("X",))
    async with world() as w:
        orders = await w.subscribe(wanted=wanted)
        await w.append("s", "Y", "X", "X")
        await w.set_status("orders", Status.PAUSED)
        assert not await w.routing.pass_over(orders.run, Position(1))
        assert not await w.routing.pass_over(orders.run, Position(3))
        assert await w.routing.pass_over(orders.run, Position(2))
        await w.set_status("orders", Status.ACTIVE)
        await w.route(orders, wanted=wanted)
        assert observe(await w.image()).inbox == {("orders", "s"): (3,)}


async def test_unknown_run_is_not_routed(world: WorldMaker) -> None:
    """A run without a cursor (removed, or not set up) moves nothing."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("s", "X")
        result = await w.routing.route(Run(orders.run + 1000), Stream(), EventFilter(), Position(1), 10)
        assert result.outcome in (RouteOutcome.BUSY, RouteOutcome.STANDING)
        assert observe(await w.image()).inbox == {}


async def test_sweep_removes_idle_partitions_only(world: WorldMaker) -> None:
    """A partition goes when it is idle long enough and has no entries, no hold and no failure."""
    async with world() as w:
        orders = await w.subscribe()
        for stream in ("idle", "held", "busy", "young"):
            await w.append(stream, "X")
        await w.route(orders)
        await w.handle_all(orders)
        await w.set_hold(orders, "held", "paused")
        await w.append("busy", "X")
        await w.route(orders)
        await w.advance(5000)
        await w.append("young", "X")
        await w.route(orders)
        group = await w.claimed(orders)
        loaded = await w.load(group)
        young = [found for found in loaded.partitions if found.key == "young"]
        await w.work().flush(flush_of(group, young))

        assert await w.routing.sweep(orders.run, 1000.0, 100) == 1
        assert set(await w.parts(orders)) == {"held", "busy", "young"}


async def test_sweep_goes_on_by_slices_and_starts_again(world: WorldMaker) -> None:
    """Each call looks at the next ids; after the last slice it starts at the first again."""
    async with world() as w:
        orders = await w.subscribe()
        for n in range(5):
            await w.append(f"s-{n}", "X")
        await w.route(orders)
        await w.handle_all(orders)
        await w.advance(5000)

        await w.set_hold(orders, "s-0", "paused")
        assert [await w.routing.sweep(orders.run, 1000.0, 2) for _ in range(4)] == [1, 2, 1, 0]
        await w.set_hold(orders, "s-0", None)
        assert await w.routing.sweep(orders.run, 1000.0, 2) == 1


async def test_sweep_leaves_other_runs_alone(world: WorldMaker) -> None:
    """Idle removal of one subscription never touches the partitions of another."""
    async with world() as w:
        orders, bills = await w.subscribe("orders"), await w.subscribe("bills")
        await w.append("a", "X")
        for subscription in (orders, bills):
            await w.route(subscription)
            await w.handle_all(subscription)
        await w.advance(5000)
        assert await w.routing.sweep(orders.run, 1000.0, 100) == 1
        assert set(await w.parts(bills)) == {"a"}


async def test_key_is_made_again_after_removal(world: WorldMaker) -> None:
    """A key whose partition was removed gets a new one, and its order goes on."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X")
        await w.route(orders)
        await w.handle_all(orders)
        await w.advance(5000)
        await w.routing.sweep(orders.run, 1000.0, 100)
        await w.appender.append(stream_of("a", "X"))
        result = await w.route(orders)
        assert (result.created, result.activated) == (1, 1)
        assert await w.handle_all(orders) == [2]
