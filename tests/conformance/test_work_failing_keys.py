"""The lanes' port: a key that fails, is parked or is slowed leaves its group, and what is remembered of it."""

import pytest

from headrace.domain.errors import HeadraceError
from headrace.ports.work import FailureState
from support.at_work import seen, sqlstate_of, worked_on
from support.worlds import WorldMaker, by_key, failure_of, flush_of


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
