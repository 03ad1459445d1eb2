"""The engine runs on the in-memory ports alone: no database, no waiting, the same in every run."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from headrace import App, Connection, Event, PartitionKey, Stream, on, projector, reactor
from headrace.domain.engine_events import KeyFailed, MainStopped, WaitsForRetries
from headrace.domain.ids import Address, Position
from headrace.domain.subscription import ErrorClass, Status, Subscription
from headrace.engine.arrival import look
from headrace.engine.engine import Engine
from headrace.engine.horizon import HorizonService
from headrace.engine.leases import LeaseBook
from headrace.engine.pacing import Pace
from headrace.engine.rewound import LOOK_SECONDS, Rewound
from headrace.engine.router import Router
from headrace.engine.tracked import Ports, Shared, Tracked
from headrace.engine.tuning import Tuning
from headrace.engine.wake import Wake
from headrace.ports.routing import RouteOutcome
from headrace.ports.subscribers import BoundSubscriber
from headrace.ports.work import FailureState
from headrace.testing.appending import MemoryEvents
from headrace.testing.catalog import MemoryCatalog
from headrace.testing.clock import ManualClock
from headrace.testing.connection import Statement
from headrace.testing.events import stream_of
from headrace.testing.failures import MemoryFailures
from headrace.testing.hooks import MemoryHooks
from headrace.testing.horizon import MemoryHorizonSource
from headrace.testing.invariants import broken_invariants
from headrace.testing.memory import MemoryStore
from headrace.testing.observer import RecordingObserver
from headrace.testing.randomness import FixedIdentity, SeededRandomness
from headrace.testing.routing import MemoryRouting
from headrace.testing.work import MemoryWork

INSERT = "insert into seen values ($1, $2)"
HOUR = 3600.0


@projector("orders", partition_by=Stream())
class Orders:
    """Writes what it sees; one stream is poisoned until it is healed."""

    def __init__(self) -> None:
        self.poisoned: set[str] = set()

    @on()
    async def seen(self, event: Event, key: PartitionKey, db: Connection) -> None:
        """Write one event."""
        if event.stream in self.poisoned:
            raise ValueError(event.stream)
        await db.execute(INSERT, str(key), event.position)


@projector("log", partition_by=None)
class Log:
    """Sees the whole log in order."""

    @on("Placed")
    async def seen(self, event: Event, db: Connection) -> None:
        """Write one event, deferred."""
        db.defer(INSERT, "log", event.position)


@reactor("mails", partition_by=Stream(), start="beginning")
class Mails:
    """Remembers what it sent."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    @on("Placed")
    async def send(self, event: Event) -> None:
        """Send one mail."""
        self.sent.append(event.position)


class Bench:
    """An engine on twins, and what a test looks at."""

    def __init__(self, *subscribers: object) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.events = MemoryEvents(self.store)
        self.observer = RecordingObserver()
        identity = FixedIdentity()
        self.failures = MemoryFailures(self.store)
        ports = Ports(
            reader=self.events,
            routing=MemoryRouting(self.store),
            work=MemoryWork(self.store, identity),
            catalog=MemoryCatalog(self.store, identity),
            hooks=MemoryHooks(self.store),
            clock=self.clock,
            randomness=SeededRandomness(),
            observer=self.observer,
        )
        horizon = self.horizon = HorizonService(MemoryHorizonSource(self.store), self.clock, self.observer)
        shared = self.shared = Shared(Tuning("shop"), ports, LeaseBook(self.clock.monotonic))
        app = App(*subscribers, name="shop")
        self.threads = ThreadPoolExecutor(max_workers=1)
        self.engine = Engine(app.subscribers, shared, horizon, self.threads)

    async def run(self) -> int:
        """Boot and run everything; returns the events that were processed."""
        booted = await self.engine.boot()
        ran = await self.engine.run()
        assert broken_invariants(self.store) == []
        return booted.processed + ran.processed

    def stored(self, name: str) -> Subscription:
        """Return the stored row of a subscription."""
        return self.store.subscriptions[name].stored

    def rewound(self, subscriber: BoundSubscriber) -> Rewound:
        """Return the watch over the log of one subscription, as a router that starts now has it."""
        return Rewound(self.shared, self.tracked(subscriber), self.horizon)

    def tracked(self, subscriber: BoundSubscriber) -> Tracked:
        """Return a subscription as an engine that starts now sees it."""
        stored = self.stored(subscriber.name)
        return Tracked(subscriber, stored, Pace(1, 1, 1, 1), 1.0, 1, stored.declared)

    def written(self, key: str) -> Sequence[int]:
        """Return the positions that were written and committed for one key, in order."""
        return [s.args[1] for s in self.store.executed if s == Statement(INSERT, (key, s.args[1]))]


async def test_every_event_is_handled_once_and_in_order() -> None:
    """Projectors and a reactor, partitioned or not, do what is in the log, and later only what is new."""
    mails = Mails()
    bench = Bench(Orders(), Log(), mails)
    with bench.threads:
        await bench.events.append([*stream_of("a", "Placed", "Paid"), *stream_of("b", "Placed")])
        await bench.engine.setup()
        assert await bench.run() == 7
        assert (bench.written("a"), bench.written("b"), bench.written("log")) == ([1, 2], [3], [1, 3])
        assert sorted(mails.sent) == [1, 3]

        await bench.events.append(stream_of("a", "Placed"))
        assert await bench.run() == 3
        assert await bench.run() == 0
        assert (bench.written("a"), bench.written("log")) == ([1, 2, 4], [1, 3, 4])
        assert bench.store.leases == {}


async def test_poisoned_key_is_tried_again_and_parked_in_no_time() -> None:
    """A key that fails backs off, is parked after its budget and goes on when it is healed; hours cost nothing."""
    orders = Orders()
    orders.poisoned.add("bad")
    bench = Bench(orders)
    with bench.threads:
        await bench.events.append([*stream_of("bad", "Placed", "Paid"), *stream_of("good", "Placed")])
        await bench.engine.setup()
        await bench.run()
        assert (bench.written("bad"), bench.written("good")) == ([], [3])
        shown = await bench.failures.show(Address.parse("orders#bad"))
        assert (shown.state, shown.attempts, shown.position, shown.waiting) == (FailureState.BACKING_OFF, 1, 1, 2)

        for _ in range(8):
            await bench.clock.advance(HOUR / 4)
            await bench.run()
        shown = await bench.failures.show(Address.parse("orders#bad"))
        assert shown.state is not FailureState.BACKING_OFF
        assert len(bench.observer.of(KeyFailed)) == shown.attempts

        orders.poisoned.clear()
        await bench.failures.resume(["orders"], None, "ada", "fixed")
        await bench.run()
        assert bench.written("bad") == [1, 2]
        assert bench.store.failures == {}


async def test_a_log_that_went_back_stops_its_mains_until_it_is_restored() -> None:
    """What is appended below a stored position would never be handled: the main says so and stands still, also when
    other events have filled the log again; with its own events back, it goes on and handles each once.
    """
    bench = Bench(Orders(), Log())
    with bench.threads:
        await bench.events.append(stream_of("a", *["Placed"] * 5))
        await bench.engine.setup()
        assert await bench.run() == 10
        lost = bench.store.log.go_back(Position(2))
        await bench.clock.advance(1)
        await bench.events.append(stream_of("b", "Placed"))
        assert await bench.run() == 0
        for name in ("orders", "log"):
            stored = bench.stored(name)
            assert (stored.status, stored.error_class) == (Status.ERROR, ErrorClass.LOG)
            assert "stored position 5 and the sequence went back to 3" in str(stored.reason)
            assert len(bench.observer.of(MainStopped, name)) == 1

        await bench.clock.advance(1)
        await bench.events.append(stream_of("c", *["Placed"] * 4))
        await bench.engine.setup()
        assert await bench.run() == 0
        assert bench.stored("log").status is Status.ERROR

        bench.store.log.go_back(Position(2))
        bench.store.log.restore(lost)
        await bench.engine.setup()
        await bench.events.append(stream_of("d", "Placed"))
        assert await bench.run() == 2
        assert (bench.written("a"), bench.written("log")) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6])
        assert (bench.written("b"), bench.written("c"), bench.written("d")) == ([], [], [6])


async def test_a_position_that_another_process_stored_by_a_newer_line_is_no_log_that_went_back() -> None:
    """A stored position may be above an old look at the sequence: a look that began after it was read decides."""
    bench = Bench(Orders(), Log())
    with bench.threads:
        await bench.events.append(stream_of("a", "Placed"))
        await bench.engine.setup()
        await bench.run()
        old = await bench.horizon.refresh()
        await bench.events.append(stream_of("a", "Placed", "Placed"))
        await bench.run()
        for bound in bench.engine.select():
            assert not await bench.rewound(bound).stops(old)
            assert bench.stored(bound.name).status is Status.ACTIVE
            bench.store.log.go_back(Position(1))
            assert await bench.rewound(bound).stops(old)
            assert bench.stored(bound.name).status is Status.ERROR
            bench.store.log.sequence = Position(3)


async def test_a_log_that_has_grown_again_before_a_router_wakes_went_back_all_the_same() -> None:
    """Any look of the process that saw the sequence lower counts: the router stops, does not take the younger event at
    its position for the old one, and goes on when the old ones are back; who begins later is not stopped for it.
    """
    bench = Bench(Orders())
    with bench.threads:
        await bench.events.append(stream_of("a", *["Placed"] * 5))
        await bench.engine.setup()
        await bench.run()
        (bound,) = bench.engine.select()
        router = Router(bench.shared, bench.tracked(bound), bench.horizon, Wake())
        await router.step(100)
        await bench.clock.advance(1)
        lost = bench.store.log.go_back(Position(2))
        await bench.horizon.refresh()
        await bench.clock.advance(0.1)
        await bench.events.append(stream_of("b", *["Placed"] * 6))
        await bench.clock.advance(0.1)

        result = await router.step(100)
        assert result is not None
        assert result.outcome is RouteOutcome.STANDING
        stored = bench.stored("orders")
        assert (stored.status, stored.error_class) == (Status.ERROR, ErrorClass.LOG)
        assert "stored position 5 and the sequence went back to 2" in str(stored.reason)
        watch = Rewound(bench.shared, bench.tracked(bound), bench.horizon)
        assert not await watch.recover()

        for position in range(3, 9):
            bench.store.log.delete(Position(position))
        bench.store.log.go_back(Position(2))
        await bench.horizon.refresh()
        bench.store.log.restore(lost)
        assert await watch.recover()
        assert not await watch.stops(await bench.horizon.refresh())
        assert not await bench.rewound(bound).stops(await bench.horizon.refresh())
        assert bench.stored("orders").status is Status.ACTIVE


async def test_waiting_for_a_key_that_backs_off_is_told_once() -> None:
    """Who waits for the end of the work hears once that only keys that failed are left, and not while more is."""
    orders = Orders()
    orders.poisoned.add("bad")
    bench = Bench(orders)
    with bench.threads:
        await bench.events.append([*stream_of("bad", "Placed"), *stream_of("good", "Placed")])
        await bench.engine.setup()
        (bound,) = bench.engine.select()
        before = await look(bench.shared.ports, [bench.tracked(bound)], await bench.horizon.refresh())
        working = asyncio.create_task(bench.engine.serve(asyncio.Event(), until_caught_up=True))
        await bench.clock.advance(4)
        told = bench.observer.of(WaitsForRetries)
        orders.poisoned.clear()
        await bench.clock.advance(60)
        result = await working

    assert (before.pending, before.backing_off) == (True, False)
    assert len(told) == len(bench.observer.of(WaitsForRetries)) == 1
    assert (result.has_pending, result.blocked) == (False, False)


async def test_what_is_in_hand_of_later_events_is_not_waited_for() -> None:
    """Up to a target all is handled, whatever an event above it does; without one, all that is in the log counts."""
    orders = Orders()
    orders.poisoned.add("bad")
    bench = Bench(orders)
    with bench.threads:
        await bench.events.append(stream_of("good", "Placed"))
        await bench.engine.setup()
        await bench.run()
        await bench.events.append(stream_of("bad", "Placed"))
        await bench.run()
        (bound,) = bench.engine.select()
        ports, tracked, horizon = bench.shared.ports, [bench.tracked(bound)], await bench.horizon.refresh()
        later, now = (await look(ports, tracked, horizon, Position(1)), await look(ports, tracked, horizon))
        there = await look(ports, tracked, horizon, Position(2))

    assert (later.pending, now.pending, there.pending) == (False, True, True)


async def test_who_is_stopped_or_leaves_a_parked_key_has_not_caught_up() -> None:
    """A worker that is stopped before it began has work left; one that ends beside a parked key says that it waits."""
    orders = Orders()
    orders.poisoned.add("bad")
    bench = Bench(orders)
    stopped = asyncio.Event()
    stopped.set()
    with bench.threads:
        await bench.events.append(stream_of("bad", "Placed"))
        early = await bench.engine.serve(stopped, until_caught_up=True)
        working = asyncio.create_task(bench.engine.serve(asyncio.Event(), until_caught_up=True))
        await bench.clock.advance(HOUR)
        result = await working

    assert (early.has_pending, early.blocked) == (True, False)
    assert (result.has_pending, result.blocked) == (False, True)


async def test_a_line_is_judged_once_for_each_start() -> None:
    """One statement for each start of the line, none for each look; and a main in error is looked at now and then."""
    bench = Bench(Orders())
    with bench.threads:
        await bench.events.append(stream_of("a", "Placed", "Placed"))
        await bench.engine.setup()
        await bench.run()
        (bound,) = bench.engine.select()
        watch = bench.rewound(bound)
        assert not await watch.stops(await bench.horizon.refresh())
        await bench.clock.advance(1)
        lost = bench.store.log.go_back(Position(0))
        horizon = await bench.horizon.refresh()
        assert (await look(bench.shared.ports, [bench.tracked(bound)], horizon)).pending
        assert await watch.stops(horizon)
        assert not (await look(bench.shared.ports, [bench.tracked(bound)], horizon)).pending
        assert not await watch.stops(horizon)
        await bench.clock.advance(LOOK_SECONDS)
        assert not await watch.look_again()
        bench.store.log.restore(lost)
        assert not await watch.look_again()
        await bench.clock.advance(LOOK_SECONDS)
        assert await watch.look_again()
        assert bench.stored("orders").status is Status.ACTIVE
        assert not await watch.look_again()
