"""The lanes' port, second half: transactions, flushes, failures, and what a stale owner is refused."""

import pytest

from headrace.domain.errors import HeadraceError, LeaseLost
from headrace.domain.event import EventFilter
from headrace.domain.ids import Position
from headrace.domain.subscription import Status, Subscription
from headrace.ports.work import (
    ClaimGroup,
    FailureState,
    Flush,
    FlushMode,
    KeyFailure,
    Loaded,
    Progress,
    WorkTransaction,
)
from support.observed import Observed, observe
from support.worlds import World, WorldMaker, by_key, failure_of, flush_of, log_flush_of, positions_of, progress_of


async def worked_on(w: World, limit: int = 1000, **streams: int) -> tuple[Subscription, ClaimGroup, Loaded]:
    """Return a subscription with so many events for each key, all of it claimed and loaded."""
    orders = await w.subscribe()
    for stream, count in streams.items():
        await w.append(stream, *["X"] * count)
    await w.route(orders)
    group = await w.claimed(orders)
    return orders, group, await w.load(group, limit=limit)


async def seen(w: World) -> Observed:
    """Return what is stored now."""
    return observe(await w.image())


def sqlstate_of(error: BaseException) -> object:
    """Return the SQLSTATE of an error or of what caused it."""
    return getattr(error, "sqlstate", None) or getattr(error.__cause__, "sqlstate", None)


class Refused(Exception):
    """A handler's own error."""


async def test_flush_of_everything_ends_the_lease(world: WorldMaker) -> None:
    """Positions move, entries and ready rows go, counters count, and the lease is gone."""
    async with world() as w:
        orders, group, loaded = await worked_on(w, a=2, b=1)
        flushed = await w.work().flush(flush_of(group, loaded.partitions, slot=3, busy_seconds=0.25))
        after = await seen(w)

        assert (flushed.drained, flushed.status, flushed.epoch, flushed.streak) == (2, "active", orders.epoch, 0)
        assert after.partitions == {("orders", "a"): (2, None), ("orders", "b"): (3, None)}
        assert (after.inbox, after.ready, after.leases) == ({}, {}, {})
        assert after.counters == {("orders", 3): (3, 2, 0, 0, 250_000)}


async def test_flush_keeps_awake_what_arrived_meanwhile(world: WorldMaker) -> None:
    """A key that got events while its group was handled is due again, behind those that wait longer."""
    async with world() as w:
        orders, group, loaded = await worked_on(w, a=1)
        await w.append("a", "X", "X")
        await w.append("b", "X")
        await w.route(orders)
        flushed = await w.work().flush(flush_of(group, loaded.partitions))

        assert flushed.drained == 0
        assert (await seen(w)).ready[("orders", "a")] == (2, 2, "due", None, 0, 0)
        assert sorted(await w.handle_all(orders)) == [2, 3, 4]


async def test_key_that_was_flushed_queues_up_behind_others(world: WorldMaker) -> None:
    """What is left of a flushed key waits behind keys that became due before the flush."""
    async with world() as w:
        orders, group, loaded = await worked_on(w, limit=1, a=2)
        await w.append("b", "X")
        await w.route(orders)
        await w.work().flush(flush_of(group, loaded.partitions))
        next_one = await w.claimed(orders, parts=1)
        assert [part.part for part in next_one.parts] == [await w.part(orders, "b")]


async def test_end_frees_what_was_claimed_and_not_handled(world: WorldMaker) -> None:
    """Ending the lease frees every key of it; those not in the flush are due again as they were."""
    async with world() as w:
        orders, group, loaded = await worked_on(w, a=1, b=1)
        await w.work().flush(flush_of(group, [by_key(loaded)["a"]]))
        after = await seen(w)
        assert after.ready == {("orders", "b"): (1, 2, "due", None, 0, 0)}
        assert after.leases == {}
        assert await w.handle_all(orders) == [2]


async def test_what_was_not_handled_queues_up_again(world: WorldMaker) -> None:
    """Keys that were claimed and not handled wait behind those that became due before the flush."""
    async with world() as w:
        orders, group, loaded = await worked_on(w, a=1, b=1)
        await w.append("c", "X")
        await w.route(orders)
        await w.work().flush(flush_of(group, [by_key(loaded)["a"]]))
        first = await w.claimed(orders, parts=1)
        assert [part.part for part in first.parts] == [await w.part(orders, "c")]


async def test_end_without_progress_gives_the_lease_back(world: WorldMaker) -> None:
    """A flush that handled nothing ends the lease and counts nothing."""
    async with world() as w:
        _, group, _ = await worked_on(w, a=1)
        flushed = await w.work().flush(flush_of(group, []))
        after = await seen(w)
        assert (flushed.drained, after.leases, after.counters) == (0, {}, {})
        assert after.ready == {("orders", "a"): (1, 1, "due", None, 0, 0)}


async def test_busy_time_without_events_is_counted(world: WorldMaker) -> None:
    """Time that handlers took is counted although nothing was handled."""
    async with world() as w:
        _, group, _ = await worked_on(w, a=1)
        await w.work().flush(flush_of(group, [], busy_seconds=0.5, slot=1))
        assert (await seen(w)).counters == {("orders", 1): (0, 0, 0, 0, 500_000)}


async def test_part_frees_the_listed_keys_only(world: WorldMaker) -> None:
    """A flush of a part frees its keys, the rest of them too, and the lease stays for the others."""
    async with world() as w:
        orders, group, loaded = await worked_on(w, limit=1, a=2, b=1, c=1)
        found = by_key(loaded)
        flushed = await w.work().flush(flush_of(group, [found["a"], found["b"]], FlushMode.PART))
        after = await seen(w)

        assert flushed.drained == 1
        assert after.ready == {
            ("orders", "a"): (1, 2, "due", None, 0, 0),
            ("orders", "c"): (1, 4, "due", group.lease, 0, 0),
        }
        assert list(after.leases) == [group.lease]
        await w.work().flush(flush_of(group, [found["c"]]))
        assert (await seen(w)).leases == {}
        assert await w.handle_all(orders) == [2]


async def test_keep_leaves_the_listed_keys_leased(world: WorldMaker) -> None:
    """A flush on the way moves a key and keeps it; a key that ran dry leaves."""
    async with world() as w:
        orders, group, loaded = await worked_on(w, limit=1, a=2, b=1)
        await w.work().flush(flush_of(group, loaded.partitions, FlushMode.KEEP))
        after = await seen(w)
        assert after.ready == {("orders", "a"): (1, 2, "due", group.lease, 0, 0)}
        assert after.partitions == {("orders", "a"): (1, None), ("orders", "b"): (3, None)}
        assert await w.claim(orders, worker=2) is None
        assert positions_of(await w.load(group)) == {"a": [2]}


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


@pytest.mark.parametrize("mode", list(FlushMode))
async def test_event_is_never_flushed_twice(world: WorldMaker, mode: FlushMode) -> None:
    """The position of a key only rises and an inbox entry is used once: a repeated flush breaks and changes nothing."""
    async with world() as w:
        _, group, loaded = await worked_on(w, limit=1, a=2, b=1)
        once = flush_of(group, [by_key(loaded)["a"]], FlushMode.KEEP)
        await w.work().flush(once)
        before = await seen(w)
        with pytest.raises(HeadraceError, match="gone or ahead") as refused:
            await w.work().flush(Flush(once.run, once.lease, mode, once.progress))
        assert sqlstate_of(refused.value) == "HR002"
        assert await seen(w) == before


async def test_entry_that_is_gone_breaks_the_flush(world: WorldMaker) -> None:
    """Every handled position must have its inbox entry; otherwise the whole flush is taken back."""
    async with world() as w:
        _, group, loaded = await worked_on(w, a=2, b=1)
        found = by_key(loaded)
        wrong = Progress(found["b"].part, Position(9), (Position(9),))
        before = await seen(w)
        with pytest.raises(HeadraceError, match="inbox entries") as refused:
            await w.work().flush(Flush(group.run, group.lease, FlushMode.END, (progress_of(found["a"]), wrong)))
        assert sqlstate_of(refused.value) == "HR003"
        assert await seen(w) == before


@pytest.mark.parametrize("mode", list(FlushMode))
async def test_key_that_left_the_lease_breaks_the_flush(world: WorldMaker, mode: FlushMode) -> None:
    """A key that was freed from the lease (failed, slowed, held) cannot be flushed with it any more."""
    async with world() as w:
        _, group, loaded = await worked_on(w, a=1, b=1, c=1)
        found = by_key(loaded)
        await w.work().slow(group.lease, found["a"].part, 1000.0)
        before = await seen(w)
        with pytest.raises(HeadraceError, match="ready row") as refused:
            await w.work().flush(flush_of(group, [found["a"]], mode))
        assert sqlstate_of(refused.value) == "HR004"
        assert await seen(w) == before


async def test_flush_hears_of_a_pause(world: WorldMaker) -> None:
    """A flush still commits after a pause, and tells the new status and epoch."""
    async with world() as w:
        orders, group, loaded = await worked_on(w, a=1)
        await w.set_status("orders", Status.PAUSED)
        flushed = await w.work().flush(flush_of(group, loaded.partitions))
        assert (flushed.status, flushed.epoch) == ("paused", orders.epoch + 1)


async def test_failure_backs_off_in_ready_and_is_recorded(world: WorldMaker) -> None:
    """A failing key leaves its group, is due later, and has one failure row; the lease stays for the others."""
    async with world() as w:
        orders, group, loaded = await worked_on(w, a=2, b=1)
        found = by_key(loaded)
        assert await w.work().fail(failure_of(group, found["a"], delay=2000.0)) == 1
        after = await seen(w)

        assert after.ready[("orders", "a")] == (2, 1, 2000.0, None, 1, 0)
        assert after.failures == {
            ("orders", "a"): (
                1,
                FailureState.BACKING_OFF,
                1,
                "recoverable",
                "ValueError",
                "no such customer",
                "worker-1",
                0.0,
                0.0,
                2000.0,
            )
        }
        assert list(after.leases) == [group.lease]
        assert after.counters == {}
        await w.work().flush(flush_of(group, [found["b"]]))
        assert await w.claim(orders) is None


async def test_failure_clears_the_take_overs(world: WorldMaker) -> None:
    """A key that fails, or asks for a pause, has not killed its owner: it is not suspected any longer."""
    async with world() as w:
        orders, _, _ = await worked_on(w, a=1, b=1)
        await w.advance(1100.0)
        await w.work().take_over()
        group = await w.claimed(orders)
        found = by_key(await w.load(group))
        assert {partition.takeovers for partition in found.values()} == {1}
        await w.work().fail(failure_of(group, found["a"]))
        await w.work().slow(group.lease, found["b"].part, 1000.0)
        assert {row[5] for row in (await seen(w)).ready.values()} == {0}


async def test_attempts_survive_and_success_ends_the_failure(world: WorldMaker) -> None:
    """Each failure counts; a flush of the key that names it recovered clears attempts and failure."""
    async with world() as w:
        orders, group, loaded = await worked_on(w, a=2)
        for attempt in (1, 2, 3):
            assert await w.work().fail(failure_of(group, loaded.partitions[0], delay=1000.0)) == attempt
            await w.work().release([group.lease])
            await w.advance(1100.0)
            group = await w.claimed(orders)
            assert [part.attempts for part in group.parts] == [attempt]
            loaded = await w.load(group, limit=1)
            assert loaded.partitions[0].attempts == attempt
        await w.work().flush(flush_of(group, loaded.partitions))
        after = await seen(w)
        assert (after.failures, after.ready) == ({}, {("orders", "a"): (1, 2, "due", None, 0, 0)})


async def test_first_failure_is_remembered_per_event(world: WorldMaker) -> None:
    """Failing again at the same event keeps the time of the first failure; another event starts anew."""
    async with world() as w:
        orders, group, loaded = await worked_on(w, a=2)
        await w.work().fail(failure_of(group, loaded.partitions[0], delay=100.0))
        await w.work().release([group.lease])
        await w.advance(1000.0)
        group = await w.claimed(orders)
        await w.work().fail(failure_of(group, loaded.partitions[0], delay=100.0, error="still"))
        assert (await seen(w)).failures[("orders", "a")][5:9] == ("still", "worker-1", -1000.0, 0.0)
        await w.work().release([group.lease])
        await w.advance(1000.0)
        group = await w.claimed(orders)
        await w.work().fail(failure_of(group, loaded.partitions[0], delay=100.0, position=2))
        row = (await seen(w)).failures[("orders", "a")]
        assert (row[0], row[2], row[7]) == (2, 3, 0.0)


@pytest.mark.parametrize(
    ("state", "delay", "due"), [(FailureState.PARKED, 3000.0, 3000.0), (FailureState.WAITING, None, None)]
)
async def test_parked_key_is_counted_once_and_sleeps(
    world: WorldMaker, state: FailureState, delay: float | None, due: float | None
) -> None:
    """A parked key is due with its retry, one that waits for a person never; what arrives does not wake it."""
    async with world() as w:
        orders, group, loaded = await worked_on(w, a=1)
        await w.work().fail(failure_of(group, loaded.partitions[0], state=state, delay=delay, slot=2))
        await w.work().release([group.lease])
        await w.append("a", "X", "X", "X")
        await w.route(orders)
        after = await seen(w)
        assert after.ready == {("orders", "a"): (4, 1, due, None, 1, 0)}
        assert after.failures[("orders", "a")][1] == state
        assert after.failures[("orders", "a")][9] == due
        assert after.counters == {("orders", 2): (0, 0, 0, 1, 0)}
        assert await w.claim(orders) is None


async def test_slow_counts_no_attempt(world: WorldMaker) -> None:
    """A slowed key is due later without attempt or failure row."""
    async with world() as w:
        orders, group, loaded = await worked_on(w, a=1)
        await w.work().slow(group.lease, loaded.partitions[0].part, 1000.0)
        await w.work().release([group.lease])
        after = await seen(w)
        assert (after.ready, after.failures) == ({("orders", "a"): (1, 1, 1000.0, None, 0, 0)}, {})
        await w.advance(1100.0)
        assert await w.handle_all(orders) == [1]


async def test_key_fails_only_while_it_is_leased(world: WorldMaker) -> None:
    """A key that left the group cannot fail or slow down in it again."""
    async with world() as w:
        _, group, loaded = await worked_on(w, a=1, b=1)
        a = by_key(loaded)["a"]
        await w.work().fail(failure_of(group, a))
        before = await seen(w)
        for again in (w.work().fail(failure_of(group, a)), w.work().slow(group.lease, a.part, 1.0)):
            with pytest.raises(HeadraceError, match="ready row") as refused:
                await again
            assert sqlstate_of(refused.value) == "HR004"
        assert await seen(w) == before


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
