"""The lanes' port, first half: probe, claim, load, leases."""

import asyncio

import pytest

from headrace.domain.errors import LeaseLost
from headrace.domain.event import EventFilter
from headrace.domain.ids import Position
from headrace.domain.subscription import Status, Subscription
from headrace.ports.work import FlushMode
from headrace.testing.events import new
from support.observed import observe
from support.worlds import World, WorldMaker, by_key, declared, failure_of, flush_of, log_flush_of, positions_of


async def with_keys(w: World, *keys: str) -> Subscription:
    """Return a subscription with one event for each key, made due one after the other."""
    orders = await w.subscribe()
    for key in keys:
        await w.append(key, "X")
        await w.route(orders)
    return orders


async def keys_of(w: World, subscription: Subscription, worker: int = 1, **limits: int) -> set[str]:
    """Claim and return the keys."""
    group = await w.claim(subscription, worker, **limits)
    by_part = {row.id: key for key, row in (await w.parts(subscription)).items()}
    return set() if group is None else {by_part[part.part] for part in group.parts}


async def test_claim_marks_due_keys_with_one_lease(world: WorldMaker) -> None:
    """A claim takes what is due under a lease of its own, with what the rows said, and writes the lease."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X", "X")
        await w.append("b", "X")
        await w.route(orders)
        group = await w.claimed(orders, events=500, ttl=2000.0)
        seen = observe(await w.image())

        assert sorted((part.backlog, part.attempts, part.takeovers) for part in group.parts) == [(1, 0, 0), (2, 0, 0)]
        assert {row[3] for row in seen.ready.values()} == {group.lease}
        assert list(seen.leases) == [group.lease]
        assert (seen.leases[group.lease][0], seen.leases[group.lease][1]) == ("orders", "work")
        assert (seen.leases[group.lease][3], seen.leases[group.lease][4]) == ("worker-1", 2)
        assert seen.leases[group.lease][6] == 2000.0


async def test_nothing_due_claims_nothing(world: WorldMaker) -> None:
    """Without due keys there is no group and no lease row."""
    async with world() as w:
        orders = await w.subscribe()
        assert await w.claim(orders) is None
        assert observe(await w.image()).leases == {}


async def test_claimed_keys_are_nobody_elses(world: WorldMaker) -> None:
    """A second claim takes only what the first left; events that arrive for a leased key wait for its owner."""
    async with world() as w:
        orders = await with_keys(w, "a", "b", "c")
        assert await keys_of(w, orders, parts=2) == {"a", "b"}
        await w.append("a", "X")
        await w.route(orders)
        assert await keys_of(w, orders, worker=2) == {"c"}
        assert await keys_of(w, orders, worker=3) == set()


async def test_claim_takes_the_longest_due_first(world: WorldMaker) -> None:
    """The order is that of becoming due, not of keys, ids or positions."""
    async with world() as w:
        orders = await with_keys(w, "c", "a", "b")
        assert [await keys_of(w, orders, parts=1) for _ in range(4)] == [{"c"}, {"a"}, {"b"}, set()]


async def test_claim_looks_at_its_own_run_only(world: WorldMaker) -> None:
    """Subscriptions do not see each other's keys."""
    async with world() as w:
        orders, bills = await w.subscribe("orders"), await w.subscribe("bills")
        await w.append("a", "X")
        await w.route(bills)
        assert await w.claim(orders) is None
        assert await keys_of(w, bills) == {"a"}


@pytest.mark.parametrize(
    ("backlogs", "events", "taken"),
    [
        ([3, 3, 3], 1, 1),
        ([3, 3, 3], 3, 1),
        ([3, 3, 3], 4, 2),
        ([3, 3, 3], 7, 3),
        ([9, 1, 1], 5, 1),
        ([1, 9, 1], 5, 2),
    ],
)
async def test_events_bound_a_claim(world: WorldMaker, backlogs: list[int], events: int, taken: int) -> None:
    """Keys are added while the backlog of those before is below the bound; the first always fits."""
    async with world() as w:
        orders = await w.subscribe()
        for n, backlog in enumerate(backlogs):
            await w.append(f"s-{n}", *["X"] * backlog)
            await w.route(orders)
        group = await w.claimed(orders, events=events)
        assert len(group.parts) == taken


@pytest.mark.parametrize(
    ("lanes", "floor", "parts", "taken"),
    [
        (1, 0, 1000, 10),
        (2, 0, 1000, 5),
        (3, 0, 1000, 4),
        (10, 0, 1000, 1),
        (100, 0, 1000, 1),
        (10, 4, 1000, 4),
        (2, 8, 1000, 8),
        (2, 0, 3, 3),
        (10, 8, 3, 3),
    ],
)
async def test_claim_takes_a_fair_share(world: WorldMaker, lanes: int, floor: int, parts: int, taken: int) -> None:
    """A share is the due keys over the live lanes, not cut below `floor` events, never more than `parts`."""
    async with world() as w:
        orders = await with_keys(w, *(f"s-{n}" for n in range(10)))
        group = await w.claimed(orders, lanes=lanes, floor=floor, parts=parts)
        assert len(group.parts) == taken


async def test_floor_counts_events_not_keys(world: WorldMaker) -> None:
    """Beyond the share keys are added only while the events before them are below the floor."""
    async with world() as w:
        orders = await w.subscribe()
        for n in range(6):
            await w.append(f"s-{n}", "X", "X", "X")
            await w.route(orders)
        group = await w.claimed(orders, lanes=6, floor=5)
        assert len(group.parts) == 2


async def test_due_tells_what_waits(world: WorldMaker) -> None:
    """The probe tells work due now, or the seconds to the next, with status and epoch of each run."""
    async with world() as w:
        orders, bills = await w.subscribe("orders"), await w.subscribe("bills")
        await w.append("a", "X")
        await w.append("b", "X")

        (nothing,) = await w.work().due([orders.run])
        assert (nothing.run, nothing.status, nothing.epoch) == (orders.run, "active", orders.epoch)
        assert (nothing.due, nothing.next_due_in) == (False, None)

        await w.route(orders)
        found = {run.run: run.due for run in await w.work().due([orders.run, bills.run])}
        assert found == {orders.run: True, bills.run: False}

        group = await w.claimed(orders)
        assert not (await w.work().due([orders.run]))[0].due
        a, b = (await w.load(group)).partitions
        await w.work().slow(group.lease, a.part, 2000.0)
        await w.work().slow(group.lease, b.part, 1000.0)
        (later,) = await w.work().due([orders.run])
        assert not later.due
        assert later.next_due_in == pytest.approx(1000.0, abs=30)
        await w.advance(1100.0)
        assert (await w.work().due([orders.run]))[0].due
        assert await w.work().due([]) == []


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


async def test_unpartitioned_subscription_is_claimed_when_behind(world: WorldMaker) -> None:
    """Its one key is due exactly when events lie between its position and the horizon, and goes to one lane."""
    async with world() as w:
        log = await w.subscribe("log", None)
        assert await w.claim_log(log) is None
        await w.append("a", "X")
        await w.append("b", "X")
        assert await w.claim_log(log, upto=0) is None
        group = await w.claim_log(log)
        assert group is not None
        assert await w.claim_log(log, worker=2) is None
        loaded = await w.work().load_log(group, EventFilter(), Position(2), 10, 10**6)
        assert positions_of(loaded) == {"": [1, 2]}
        assert loaded.partitions[0].to == 2
        await w.work().flush(log_flush_of(group, loaded))
        assert await w.claim_log(log) is None


async def test_log_load_passes_unwanted_events(world: WorldMaker) -> None:
    """The position may move over events of other types, up to the last row at or below the horizon."""
    wanted = EventFilter(types=("X",))
    async with world() as w:
        log = await w.subscribe("log", None, wanted=wanted)
        await w.append("a", "Y", "X", "Y", "X", "Y")
        group = await w.claim_log(log)
        assert group is not None
        first = await w.work().load_log(group, wanted, Position(5), 1, 10**6)
        assert (positions_of(first), first.partitions[0].to) == ({"": [2]}, 2)
        below = await w.work().load_log(group, wanted, Position(3), 10, 10**6)
        assert (positions_of(below), below.partitions[0].to) == ({"": [2]}, 3)
        loaded = await w.work().load_log(group, wanted, Position(5), 10, 10**6)
        assert (positions_of(loaded), loaded.partitions[0].to) == ({"": [2, 4]}, 5)
        await w.work().flush(log_flush_of(group, loaded))
        assert observe(await w.image()).partitions == {("log", ""): (5, None)}


async def test_log_load_without_wanted_events_still_moves(world: WorldMaker) -> None:
    """When nothing is wanted the load is empty and says where the position may move."""
    wanted = EventFilter(types=("X",))
    async with world() as w:
        log = await w.subscribe("log", None, wanted=wanted)
        await w.append("a", "Y", "Y")
        group = await w.claim_log(log)
        assert group is not None
        loaded = await w.work().load_log(group, wanted, Position(2), 10, 10**6)
        assert (positions_of(loaded), loaded.partitions[0].to) == ({"": []}, 2)
        await w.work().flush(log_flush_of(group, loaded))
        seen = observe(await w.image())
        assert seen.partitions == {("log", ""): (2, None)}
        assert seen.ready == {("log", ""): (0, 2, "due", None, 0, 0)}


async def test_log_load_of_a_standing_or_held_subscription(world: WorldMaker) -> None:
    """A paused unpartitioned subscription loads nothing; a held one names its key."""
    async with world() as w:
        log = await w.subscribe("log", None)
        await w.append("a", "X")
        group = await w.claim_log(log)
        assert group is not None
        await w.set_status("log", Status.PAUSED)
        assert (await w.work().load_log(group, EventFilter(), Position(1), 10, 10**6)).standing
        await w.set_status("log", Status.ACTIVE)
        await w.set_hold(log, "", "paused")
        loaded = await w.work().load_log(group, EventFilter(), Position(1), 10, 10**6)
        assert (loaded.partitions, loaded.held) == ((), (await w.part(log, ""),))
        assert await w.work().hold(group.lease, loaded.held) == 1
        await w.work().release([group.lease])
        assert await w.claim_log(log) is None


async def test_failing_log_is_not_claimed_before_its_retry(world: WorldMaker) -> None:
    """The one key of an unpartitioned subscription backs off like any other."""
    async with world() as w:
        log = await w.subscribe("log", None)
        await w.append("a", "X", "X")
        group = await w.claim_log(log)
        assert group is not None
        loaded = await w.work().load_log(group, EventFilter(), Position(2), 10, 10**6)
        assert await w.work().fail(failure_of(group, loaded.partitions[0])) == 1
        await w.work().release([group.lease])
        assert await w.claim_log(log) is None
        await w.advance(1100.0)
        again = await w.claim_log(log)
        assert again is not None
        assert again.parts[0].attempts == 1
        loaded = await w.work().load_log(again, EventFilter(), Position(2), 10, 10**6)
        await w.work().flush(log_flush_of(again, loaded))
        seen = observe(await w.image())
        assert (seen.failures, seen.ready) == ({}, {("log", ""): (0, 2, "due", None, 0, 0)})


async def test_log_flush_keeps_the_lease(world: WorldMaker) -> None:
    """A flush on the way moves the position and keeps the lease; the next starts where it ended."""
    async with world() as w:
        log = await w.subscribe("log", None)
        await w.append("a", "X", "X")
        group = await w.claim_log(log)
        assert group is not None
        first = await w.work().load_log(group, EventFilter(), Position(1), 10, 10**6)
        await w.work().flush(log_flush_of(group, first, mode=FlushMode.KEEP))
        assert observe(await w.image()).ready == {("log", ""): (0, 1, "due", group.lease, 0, 0)}
        second = await w.work().load_log(group, EventFilter(), Position(2), 10, 10**6)
        assert positions_of(second) == {"": [2]}
        await w.work().flush(log_flush_of(group, second))
        seen = observe(await w.image())
        assert (seen.leases, seen.counters[("log", 0)][0]) == ({}, 2)


async def test_declaring_makes_no_work(world: WorldMaker) -> None:
    """A subscription that is only declared has nothing due."""
    async with world() as w:
        (stored,) = await w.catalog.declare([declared("orders")])
        assert await w.claim(stored) is None
        (found,) = await w.work().due([stored.run])
        assert (found.status, found.due) == ("new", False)
