"""The ledger of failing keys: list, show, resume, skip."""

from datetime import timedelta

import pytest

from headrace.domain.errors import NotAllowed, NotFound
from headrace.domain.event import EventFilter
from headrace.domain.ids import Address, Position
from headrace.domain.subscription import Subscription
from headrace.ports.failures import Failure, Resumed
from headrace.ports.work import FailureState
from support.observed import observe
from support.worlds import World, WorldMaker, by_key, failure_of, flush_of, log_flush_of, positions_of

DONE = ("ada", "the customer exists now")


async def failing(w: World, name: str = "orders", **streams: FailureState) -> Subscription:
    """Return a subscription in which keys of three events each fail at the first, in the given states."""
    subscription = await w.subscribe(name)
    for stream in streams:
        await w.append(stream, "X", "X", "X")
    await w.route(subscription)
    group = await w.claimed(subscription)
    for partition in (await w.load(group)).partitions:
        state = streams.get(str(partition.key))
        if state is not None:
            delay = None if state is FailureState.WAITING else 2000.0
            await w.work().fail(failure_of(group, partition, state=state, delay=delay, error=f"no {partition.key}"))
    await w.work().release([group.lease])
    return subscription


async def listed(w: World, *args: object) -> list[Failure]:
    """Return the list as a list."""
    return [failure async for failure in w.failures.list(*args)]  # type: ignore[arg-type]


async def test_list_is_ordered_by_subscription_and_position(world: WorldMaker) -> None:
    """Failures come by name, then position; names and states select."""
    async with world() as w:
        await failing(w, "orders", b=FailureState.PARKED, a=FailureState.WAITING)
        await failing(w, "bills", c=FailureState.BACKING_OFF)

        assert [(f.subscription, f.key, f.position) for f in await listed(w)] == [
            ("bills", "c", 7),
            ("orders", "b", 1),
            ("orders", "a", 4),
        ]
        assert [f.key for f in await listed(w, ["orders"])] == ["b", "a"]
        assert [f.key for f in await listed(w, None, [FailureState.PARKED])] == ["b"]
        assert [f.key for f in await listed(w, ["orders"], [FailureState.WAITING, FailureState.PARKED])] == ["b", "a"]
        assert await listed(w, ["nobody"]) == []
        assert await listed(w, []) == []


async def test_show_tells_everything(world: WorldMaker) -> None:
    """One failure with its event, its error, its attempts, its times and what waits behind it."""
    async with world() as w:
        orders = await failing(w, a=FailureState.PARKED)
        await w.append("a", "X")
        await w.route(orders)
        shown = await w.failures.show(Address.parse("orders#a"))

        assert (shown.subscription, shown.key, shown.position, shown.waiting) == ("orders", "a", 1, 4)
        assert (shown.event_type, shown.stream) == ("X", "a")
        assert (shown.state, shown.attempts) == (FailureState.PARKED, 1)
        assert (shown.failure_class, shown.error_type, shown.error) == ("recoverable", "ValueError", "no a")
        assert abs(shown.failed_at - shown.first_failed_at) < timedelta(seconds=5)
        assert shown.next_retry_at is not None
        assert abs(shown.next_retry_at - shown.failed_at - timedelta(seconds=2000)) < timedelta(seconds=5)


async def test_show_of_a_vanished_event(world: WorldMaker) -> None:
    """A failure whose event is gone is still shown, without type and stream."""
    async with world() as w:
        await failing(w, a=FailureState.WAITING)
        await w.delete_event(1)
        shown = await w.failures.show(Address.parse("orders#a"))
        assert (shown.event_type, shown.stream, shown.next_retry_at) == (None, None, None)


@pytest.mark.parametrize("address", ["orders#b", "nobody#a", "orders"])
async def test_key_without_failure_is_not_found(world: WorldMaker, address: str) -> None:
    """Neither show nor skip invents a failure."""
    async with world() as w:
        await failing(w, a=FailureState.WAITING)
        with pytest.raises(NotFound):
            await w.failures.show(Address.parse(address))
        with pytest.raises(NotFound):
            await w.failures.skip(Address.parse(address), None, *DONE)


@pytest.mark.parametrize("state", list(FailureState))
async def test_resume_makes_due_with_a_fresh_budget(world: WorldMaker, state: FailureState) -> None:
    """Whatever a key waited for, it is due now and its next failure is the first of its budget; it is audited."""
    async with world() as w:
        orders = await failing(w, a=state)
        assert await w.failures.resume(["orders"], "a", *DONE) == Resumed(1, 0)
        seen = observe(await w.image())
        assert seen.ready[("orders", "a")][2] == "due"
        assert seen.failures[("orders", "a")][1] == FailureState.BACKING_OFF
        assert seen.audit == [("ada", "resume", "orders", "a", 1, "the customer exists now")]

        group = await w.claimed(orders)
        assert [part.attempts for part in group.parts] == [0]
        loaded = await w.load(group)
        assert await w.work().fail(failure_of(group, loaded.partitions[0])) == 1
        await w.work().release([group.lease])
        assert len(await listed(w)) == 1


async def test_success_after_resume_ends_the_failure(world: WorldMaker) -> None:
    """A resumed key that succeeds has no failure any more."""
    async with world() as w:
        orders = await failing(w, a=FailureState.WAITING)
        await w.failures.resume(None, None, *DONE)
        assert await w.handle_all(orders) == [1, 2, 3]
        assert await listed(w) == []


async def test_resume_selects_and_counts(world: WorldMaker) -> None:
    """Names and keys select; keys that are being tried are counted apart and left alone."""
    async with world() as w:
        orders = await failing(w, "orders", a=FailureState.PARKED, b=FailureState.WAITING)
        await failing(w, "bills", c=FailureState.PARKED)
        await w.advance(3000.0)
        group = await w.claimed(orders)
        before = observe(await w.image()).ready[("orders", "a")]

        assert await w.failures.resume(["nobody"], None, *DONE) == Resumed(0, 0)
        assert await w.failures.resume(["orders"], "zzz", *DONE) == Resumed(0, 0)
        assert await w.failures.resume(None, None, *DONE) == Resumed(2, 1)
        assert observe(await w.image()).ready[("orders", "a")] == before
        await w.work().release([group.lease])


async def test_resume_twice_counts_once(world: WorldMaker) -> None:
    """A key that is resumed and was not tried since is not resumed again."""
    async with world() as w:
        await failing(w, a=FailureState.PARKED)
        assert await w.failures.resume(None, None, *DONE) == Resumed(1, 0)
        assert await w.failures.resume(None, None, *DONE) == Resumed(0, 0)
        assert len(observe(await w.image()).audit) == 1


async def test_skip_drops_the_failing_event_only(world: WorldMaker) -> None:
    """The failing event is never handled, the rest of its key is due at once, and it is counted and audited."""
    async with world() as w:
        orders = await failing(w, a=FailureState.WAITING)
        assert await w.failures.skip(Address.parse("orders#a"), Position(1), *DONE) == 1
        seen = observe(await w.image())
        assert seen.inbox == {("orders", "a"): (2, 3)}
        assert seen.ready == {("orders", "a"): (2, 2, "due", None, 0, 0)}
        assert seen.partitions == {("orders", "a"): (0, None)}
        assert seen.counters == {("orders", 0): (0, 0, 1, 1, 0)}
        assert seen.audit == [("ada", "skip", "orders", "a", 1, "the customer exists now")]
        assert await listed(w) == []
        assert await w.handle_all(orders) == [2, 3]


async def test_skip_of_the_last_event_drains_the_key(world: WorldMaker) -> None:
    """A key that has nothing else is not ready any more."""
    async with world() as w:
        orders = await failing(w, a=FailureState.PARKED)
        for position in (1, 2, 3):
            assert await w.failures.skip(Address.parse("orders#a"), None, *DONE) == position
            group = await w.claim(orders)
            if group is not None:
                loaded = await w.load(group)
                await w.work().fail(failure_of(group, loaded.partitions[0], state=FailureState.WAITING, delay=None))
                await w.work().release([group.lease])
        seen = observe(await w.image())
        assert (seen.inbox, seen.ready) == ({}, {})
        assert seen.counters[("orders", 0)][1:3] == (1, 3)


async def test_skip_wants_the_failing_position(world: WorldMaker) -> None:
    """A position that is not the failing one is refused, and nothing changes."""
    async with world() as w:
        await failing(w, a=FailureState.WAITING)
        before = observe(await w.image())
        with pytest.raises(NotAllowed, match="position 1"):
            await w.failures.skip(Address.parse("orders#a"), Position(2), *DONE)
        assert observe(await w.image()) == before


async def test_key_that_is_being_tried_is_not_skipped(world: WorldMaker) -> None:
    """While a worker holds the key it decides; afterwards the skip is refused when the key succeeded."""
    async with world() as w:
        orders = await failing(w, a=FailureState.BACKING_OFF)
        await w.advance(3000.0)
        group = await w.claimed(orders)
        with pytest.raises(NotAllowed, match="tried now"):
            await w.failures.skip(Address.parse("orders#a"), None, *DONE)
        loaded = await w.load(group)
        await w.work().flush(flush_of(group, [by_key(loaded)["a"]]))
        with pytest.raises(NotFound):
            await w.failures.skip(Address.parse("orders#a"), None, *DONE)


async def test_skip_in_the_whole_log(world: WorldMaker) -> None:
    """An unpartitioned subscription is addressed by its name, or by the empty key, and moves onto the event."""
    async with world() as w:
        log = await w.subscribe("log", None)
        await w.append("a", "X", "X", "X")
        group = await w.claim_log(log)
        assert group is not None
        loaded = await w.work().load_log(group, EventFilter(), Position(3), 10, 10**6)
        async with w.work().begin(group, 1000.0) as transaction:
            await transaction.flush(log_flush_of(group, loaded, to=1))
        group = await w.claim_log(log)
        assert group is not None
        failure = failure_of(group, loaded.partitions[0], position=2, state=FailureState.WAITING, delay=None)
        await w.work().fail(failure)
        await w.work().release([group.lease])
        assert await w.claim_log(log) is None
        assert (await w.failures.show(Address.parse("log"))).position == 2

        assert await w.failures.skip(Address.parse("log#"), None, *DONE) == 2
        group = await w.claim_log(log)
        assert group is not None
        loaded = await w.work().load_log(group, EventFilter(), Position(3), 10, 10**6)
        assert positions_of(loaded) == {"": [3]}
        await w.work().flush(log_flush_of(group, loaded))
        assert observe(await w.image()).counters == {("log", 0): (2, 0, 1, 1, 0)}
