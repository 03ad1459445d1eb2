"""The heartbeat table: who lives, and how many lanes share a subscription."""

from uuid import UUID

from headrace.domain.ids import Position
from headrace.ports.workers import Beat
from support.worlds import WorldMaker


def beat(number: int, *subscriptions: str, lanes: int = 1, every: float = 100.0) -> Beat:
    """Return a beat of worker `number`."""
    return Beat(UUID(int=number), "shop", f"worker-{number}", "1", subscriptions, lanes, every)


async def test_beat_counts_lanes_by_subscription(world: WorldMaker) -> None:
    """The census adds up the lanes of every live worker that works on a subscription, one's own included."""
    async with world() as w:
        assert (await w.workers.beat(beat(1, "orders", "bills", lanes=2))).lanes == {"orders": 2, "bills": 2}
        assert (await w.workers.beat(beat(2, "orders", lanes=3))).lanes == {"orders": 5, "bills": 2}
        assert (await w.workers.beat(beat(1, "orders", "bills", lanes=2))).lanes == {"orders": 5, "bills": 2}


async def test_beat_says_what_holds_now(world: WorldMaker) -> None:
    """The last beat counts: other lanes, other subscriptions."""
    async with world() as w:
        await w.workers.beat(beat(1, "orders", "bills", lanes=2))
        assert (await w.workers.beat(beat(1, "bills", "bills", lanes=7))).lanes == {"bills": 7}
        assert (await w.workers.beat(beat(1))).lanes == {}


async def test_silent_worker_does_not_count(world: WorldMaker) -> None:
    """A worker lives for three of its own beats."""
    async with world() as w:
        await w.workers.beat(beat(1, "orders", every=100.0))
        await w.workers.beat(beat(2, "orders", every=1000.0))
        await w.advance(250.0)
        assert (await w.workers.beat(beat(3, "orders"))).lanes == {"orders": 3}
        await w.advance(100.0)
        assert (await w.workers.beat(beat(3, "orders"))).lanes == {"orders": 2}
        assert (await w.workers.beat(beat(1, "orders"))).lanes == {"orders": 3}


async def test_leaving_removes_the_row(world: WorldMaker) -> None:
    """A worker that leaves is not counted any more; leaving twice is nothing."""
    async with world() as w:
        await w.workers.beat(beat(1, "orders"))
        await w.workers.beat(beat(2, "orders"))
        await w.workers.leave(UUID(int=1))
        await w.workers.leave(UUID(int=1))
        assert (await w.workers.beat(beat(2, "orders"))).lanes == {"orders": 1}


async def test_leaving_sweeps_out_the_long_dead(world: WorldMaker) -> None:
    """Rows that are dead for an hour go when anybody leaves; younger ones stay."""
    async with world() as w:
        await w.workers.beat(beat(1, "orders", every=100_000.0))
        await w.advance(3000.0)
        await w.workers.beat(beat(2, "orders", every=100_000.0))
        await w.advance(1000.0)
        await w.workers.leave(UUID(int=9))
        assert (await w.workers.beat(beat(3, "orders"))).lanes == {"orders": 2}


async def test_beat_carries_the_horizon(world: WorldMaker) -> None:
    """What a worker sees of the horizon, and what it routes, is written with its beat."""
    async with world() as w:
        full = Beat(
            UUID(int=1),
            "shop",
            "w",
            "1",
            ("orders",),
            1,
            100.0,
            None,
            Position(7),
            Position(9),
            "pid 3",
            None,
            ("orders",),
        )
        await w.workers.beat(full)
        (row,) = (await w.image()).workers.values()
        assert row.beat == full
