"""The engine runs on the in-memory ports alone: no database, no waiting, the same in every run."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from headrace import App, Connection, Event, PartitionKey, Stream, on, projector, reactor
from headrace.domain.engine_events import KeyFailed
from headrace.domain.ids import Address
from headrace.engine.engine import Engine
from headrace.engine.horizon import HorizonService
from headrace.engine.leases import LeaseBook
from headrace.engine.tracked import Ports, Shared
from headrace.engine.tuning import Tuning
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
        horizon = HorizonService(MemoryHorizonSource(self.store), self.clock, self.observer)
        shared = Shared(Tuning("shop"), ports, LeaseBook(self.clock.monotonic))
        app = App(*subscribers, name="shop")
        self.threads = ThreadPoolExecutor(max_workers=1)
        self.engine = Engine(app.subscribers, shared, horizon, self.threads)

    async def run(self) -> int:
        """Boot and run everything; returns the events that were processed."""
        booted = await self.engine.boot()
        ran = await self.engine.run()
        assert broken_invariants(self.store) == []
        return booted.processed + ran.processed

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
