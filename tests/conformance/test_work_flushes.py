"""The lanes' port: what a flush moves, frees and counts, and which flushes break."""

import pytest

from headrace.domain.errors import HeadraceError
from headrace.domain.ids import Position
from headrace.domain.subscription import Status
from headrace.ports.work import Flush, FlushMode, Progress
from support.at_work import seen, sqlstate_of, worked_on
from support.worlds import WorldMaker, by_key, flush_of, positions_of, progress_of


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
