"""Two versions of an app that declare a subscription differently: one is in charge, the other stands back."""

from uuid import UUID

from headrace.domain.event import EventFilter
from headrace.domain.ids import Position
from headrace.partitioning.keys import Stream
from headrace.ports.routing import RouteOutcome
from headrace.ports.workers import Beat
from support.worlds import World, WorldMaker, declared, positions_of

A = declared("orders", wanted=EventFilter(types=("A",)))
B = declared("orders", wanted=EventFilter(types=("B", "A")))
FAR = Position(1000)


def beat(number: int, digest: str) -> Beat:
    """Return a beat of a worker that declares `orders` with a digest, beside another subscription."""
    return Beat(
        UUID(int=number), "shop", f"w{number}", "1", ("other", "orders"), 1, 100.0, declared=(A.digest * 2, digest)
    )


async def in_charge(w: World) -> str:
    """Return the digest of the declaration in charge."""
    (orders,) = await w.catalog.find(["orders"])
    return orders.declared


async def test_new_declaration_takes_charge(world: WorldMaker) -> None:
    """A declaration that was never seen takes charge at once, though workers of the old one live; the epoch tells."""
    async with world() as w:
        (first,) = await w.catalog.declare([A])
        await w.workers.beat(beat(1, A.digest))
        (second,) = await w.catalog.declare([B])
        assert (first.declared, second.declared) == (A.digest, B.digest)
        assert (second.run, second.epoch) == (first.run, first.epoch + 1)
        assert await w.catalog.declare([B]) == [second]


async def test_old_declaration_does_not_come_back_beside_a_live_worker(world: WorldMaker) -> None:
    """A restarted worker of the old version changes nothing while one of the new version lives, and takes charge again
    when the last one has been silent for three beats while it was not, or has left.
    """
    async with world() as w:
        await w.catalog.declare([A])
        (new,) = await w.catalog.declare([B])
        await w.workers.beat(beat(1, A.digest))
        await w.workers.beat(beat(2, B.digest))
        assert await w.catalog.declare([A]) == [new]
        await w.advance(299.0)
        await w.workers.beat(beat(1, A.digest))
        assert await w.catalog.declare([A]) == [new]
        await w.advance(2.0)
        await w.catalog.declare([A])
        assert await in_charge(w) == A.digest

        await w.workers.beat(beat(2, B.digest))
        await w.catalog.declare([B])
        await w.catalog.declare([A])
        assert await in_charge(w) == B.digest
        await w.workers.leave(UUID(int=2))
        await w.catalog.declare([A])
        assert await in_charge(w) == A.digest


async def test_younger_declaration_takes_charge_whenever_it_comes(world: WorldMaker) -> None:
    """A command of the new version that has ended before its workers start, or a second try of an update, leaves them
    what they would have had: charge at once, though workers of the old version live.
    """
    async with world() as w:
        await w.catalog.declare([A])
        await w.workers.beat(beat(1, A.digest))
        await w.catalog.declare([B])
        await w.catalog.declare([A])
        assert await in_charge(w) == A.digest
        await w.catalog.declare([B])
        assert await in_charge(w) == B.digest


async def test_an_outage_makes_nobody_dead(world: WorldMaker) -> None:
    """After an outage every worker has been silent: the old version waits until it has beaten for long enough to tell
    the dead from those that could not beat.
    """
    async with world() as w:
        await w.catalog.declare([A])
        (new,) = await w.catalog.declare([B])
        await w.workers.beat(beat(1, A.digest))
        await w.workers.beat(beat(2, B.digest))
        await w.advance(1000.0)
        assert await w.catalog.declare([A]) == [new]
        await w.workers.beat(beat(1, A.digest))
        assert await w.catalog.declare([A]) == [new]
        await w.advance(250.0)
        await w.workers.beat(beat(1, A.digest))
        await w.advance(49.0)
        assert await w.catalog.declare([A]) == [new]
        await w.advance(2.0)
        await w.catalog.declare([A])
        assert await in_charge(w) == A.digest


async def test_who_is_not_in_charge_routes_nothing(world: WorldMaker) -> None:
    """A router with the digest of another declaration finds the run standing, and the cursor stays."""
    async with world() as w:
        orders = await w.subscribe("orders")
        await w.append("s", "A", "B")
        await w.catalog.declare([B])
        wanted = EventFilter(types=("A",))
        result = await w.routing.route(orders.run, Stream(), wanted, FAR, 10, A.digest)
        assert result.outcome is RouteOutcome.STANDING
        batch = await w.routing.read_unrouted(orders.run, wanted, FAR, 10, 10**6, A.digest)
        assert batch.outcome is RouteOutcome.STANDING
        stored = await w.routing.store_routes(orders.run, Position(0), Position(2), [], A.digest)
        assert stored.outcome is RouteOutcome.STANDING
        result = await w.routing.route(orders.run, Stream(), EventFilter(), FAR, 10, B.digest)
        assert (result.position, result.routed) == (2, 2)


async def test_who_is_not_in_charge_loads_nothing(world: WorldMaker) -> None:
    """A lane with the digest of another declaration loads nothing of a group, also where the log is not partitioned."""
    async with world() as w:
        orders, whole = await w.subscribe("orders"), await w.subscribe("whole", None)
        await w.append("s", "B")
        await w.route(orders)
        group = await w.claimed(orders)
        assert (await w.work(1).load(group, 10, 10, 10**6, A.digest)).standing
        assert positions_of(await w.work(1).load(group, 10, 10, 10**6, orders.declared)) == {"s": [1]}
        log = await w.claim_log(whole)
        assert log is not None
        assert (await w.work(1).load_log(log, EventFilter(), FAR, 10, 10**6, A.digest)).standing
        assert not (await w.work(1).load_log(log, EventFilter(), FAR, 10, 10**6, whole.declared)).standing


def test_digest_tells_what_is_routed_apart() -> None:
    """The order of types does not matter; types, key and partitioning do, and nothing else does."""
    assert B.digest == declared("orders", wanted=EventFilter(types=("A", "B"))).digest
    assert B.digest == declared("bills", group="late", wanted=EventFilter(types=("A", "B"))).digest
    others = [A, declared("orders"), declared("orders", None), declared("orders", wanted=EventFilter(streams=("A",)))]
    assert len({B.digest, *(other.digest for other in others)}) == 5
