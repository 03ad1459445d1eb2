"""The lanes' port: the probe for due work, and which keys a claim takes."""

import pytest

from support.at_work import keys_of, with_keys
from support.observed import observe
from support.worlds import WorldMaker, declared


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


async def test_declaring_makes_no_work(world: WorldMaker) -> None:
    """A subscription that is only declared has nothing due."""
    async with world() as w:
        (stored,) = await w.catalog.declare([declared("orders")])
        assert await w.claim(stored) is None
        (found,) = await w.work().due([stored.run])
        assert (found.status, found.due) == ("new", False)
