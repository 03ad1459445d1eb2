"""The lanes' port: an unpartitioned subscription has one key, the whole log, and claims, loads and flushes it."""

import pytest

from headrace.domain.errors import HeadraceError, LeaseLost
from headrace.domain.event import EventFilter
from headrace.domain.ids import Position
from headrace.domain.subscription import Status
from headrace.ports.work import FlushMode, KeyFailure
from support.at_work import seen, sqlstate_of
from support.observed import observe
from support.worlds import WorldMaker, failure_of, log_flush_of, positions_of


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


async def test_log_flush_starts_where_its_load_did(world: WorldMaker) -> None:
    """An unpartitioned subscription moves only from the position that was loaded: a second flush breaks."""
    async with world() as w:
        log = await w.subscribe("log", None)
        await w.append("a", "X", "X")
        group = await w.claim_log(log)
        assert group is not None
        loaded = await w.work().load_log(group, EventFilter(), Position(2), 10, 10**6)
        await w.work().flush(log_flush_of(group, loaded, to=1, mode=FlushMode.KEEP))
        before = await seen(w)
        with pytest.raises(HeadraceError, match="position of partition") as refused:
            await w.work().flush(log_flush_of(group, loaded))
        assert sqlstate_of(refused.value) == "HR002"
        assert await seen(w) == before


async def test_log_flush_needs_the_lease(world: WorldMaker) -> None:
    """After a take-over the stale owner of an unpartitioned subscription is refused as well."""
    async with world() as w:
        log = await w.subscribe("log", None)
        await w.append("a", "X")
        group = await w.claim_log(log)
        assert group is not None
        loaded = await w.work().load_log(group, EventFilter(), Position(1), 10, 10**6)
        await w.advance(1100.0)
        await w.work(2).take_over()
        with pytest.raises(LeaseLost):
            await w.work().flush(log_flush_of(group, loaded))
        again = await w.claim_log(log, worker=2)
        assert again is not None
        assert again.parts[0].takeovers == 1


async def test_log_fails_and_goes_on_in_one_transaction(world: WorldMaker) -> None:
    """What was handled before the failing event of the whole log is kept with its failure."""
    async with world() as w:
        log = await w.subscribe("log", None)
        await w.append("a", "X", "X", "X")
        group = await w.claim_log(log)
        assert group is not None
        loaded = await w.work().load_log(group, EventFilter(), Position(3), 10, 10**6)
        async with w.work().begin(group, 1000.0) as transaction:
            await transaction.flush(log_flush_of(group, loaded, to=1, mode=FlushMode.KEEP))
            failure = failure_of(group, loaded.partitions[0], position=2)
            assert isinstance(failure, KeyFailure)
            await transaction.fail(failure)
        await w.work().release([group.lease])
        after = await seen(w)
        assert after.partitions == {("log", ""): (1, None)}
        assert after.ready == {("log", ""): (0, 1, 1000.0, None, 1, 0)}
        assert after.failures[("log", "")][0] == 2
