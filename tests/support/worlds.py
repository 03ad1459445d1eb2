"""One implementation of all ports, in memory or in PostgreSQL, and what a conformance test does with it.

A test asks for the fixture `world` and runs on both. What is not part of a port (time travel, a
cursor in other hands, an event deleted by hand) is offered here, because both must be able to do it.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from headrace.domain.event import EVERYTHING, Appended, Event, EventFilter
from headrace.domain.ids import START, LeaseId, PartitionId, PartitionKey, Position
from headrace.domain.subscription import Declaration, Kind, StartFrom, Status, Subscription
from headrace.partitioning.keys import Partitioner, Stream, describe
from headrace.ports.catalog import Catalog
from headrace.ports.events import EventAppender, EventReader
from headrace.ports.failures import Failures
from headrace.ports.hooks import Hooks
from headrace.ports.horizon import HorizonSource
from headrace.ports.routing import RouteResult, Routing
from headrace.ports.work import (
    ClaimGroup,
    ClaimRequest,
    FailureState,
    Flush,
    FlushMode,
    KeyFailure,
    Loaded,
    LoadedPartition,
    Progress,
    Work,
)
from headrace.ports.workers import Workers
from headrace.testing.appending import MemoryEvents
from headrace.testing.catalog import MemoryCatalog
from headrace.testing.clock import ManualClock
from headrace.testing.connection import Statement
from headrace.testing.events import stream_of
from headrace.testing.failures import MemoryFailures
from headrace.testing.hooks import MemoryHooks
from headrace.testing.horizon import MemoryHorizonSource
from headrace.testing.invariants import LONGEST_TTL, broken_invariants
from headrace.testing.memory import MemoryStore, PartitionRow
from headrace.testing.randomness import FixedIdentity, SeededRandomness
from headrace.testing.routing import MemoryRouting
from headrace.testing.work import MemoryWork
from headrace.testing.workers import MemoryWorkers

APP = "shop"
NOTE = "insert into notes (n) values ($1)"
"""What handlers write in these tests; the number 0 is refused by the database."""
ANSWER = "select n from (values (41), (42)) v (n) where n >= $1 order by n"
"""What handlers read in these tests."""
FAR = 1_000_000


class World(ABC):
    """All ports of one implementation, with the words that scenarios need."""

    routing: Routing
    catalog: Catalog
    failures: Failures
    workers: Workers
    reader: EventReader
    appender: EventAppender
    horizon: HorizonSource
    hooks: Hooks

    def __init__(self) -> None:
        self._randomness = SeededRandomness(7)
        self._works: dict[int, Work] = {}

    @abstractmethod
    def make_work(self, worker: int) -> Work:
        """Return the lanes' port of one worker."""

    @abstractmethod
    def make_catalog(self, worker: int) -> Catalog:
        """Return the catalog of another worker."""

    @abstractmethod
    async def image(self) -> MemoryStore:
        """Return all rows as they are now, only to be looked at."""

    @abstractmethod
    async def advance(self, seconds: float) -> None:
        """Let time pass."""

    @abstractmethod
    async def idle(self, seconds: float) -> None:
        """Let so many seconds pass in which no statement is sent."""

    @abstractmethod
    def cursor_taken(self, subscription: Subscription) -> AbstractAsyncContextManager[None]:
        """Hold the cursor row as another router or a command does."""

    @abstractmethod
    async def delete_event(self, position: int) -> None:
        """Take an event out of the event table by hand."""

    @abstractmethod
    async def go_back(self, to: int) -> None:
        """Make the log what it was at a position, as a restore of an older backup does."""

    @abstractmethod
    async def restore(self) -> None:
        """Bring back what the log lost, as it was."""

    @abstractmethod
    async def set_status(self, name: str, status: Status) -> None:
        """Write a status as a command would."""

    @abstractmethod
    async def set_hold(self, subscription: Subscription, key: str, hold: str | None) -> None:
        """Hold or free a key as `pause NAME#KEY` and `reactivate NAME#KEY` do."""

    @abstractmethod
    async def mark_time(self) -> Any:
        """Return a mark for `order_by_key`."""

    @abstractmethod
    async def order_by_key(self, mark: Any) -> None:
        """Put keys that became due since the mark in order of subscription and key."""

    @abstractmethod
    async def notes(self) -> list[int]:
        """Return the numbers that handlers' statements have written and committed; see `note`."""

    @abstractmethod
    async def leave_hole(self) -> None:
        """Draw one position in a transaction that is rolled back."""

    def work(self, worker: int = 1) -> Work:
        """Return the lanes' port of a worker, always the same."""
        return self._works.setdefault(worker, self.make_work(worker))

    def new_lease(self) -> LeaseId:
        """Return a lease id that nobody has."""
        return self._randomness.lease_id()

    async def append(self, stream: str, *types: str, tags: Sequence[str] = ()) -> Appended:
        """Append one event of each type."""
        return await self.appender.append(stream_of(stream, *types, tags=tags))

    async def subscribe(
        self,
        name: str = "orders",
        partition_by: Partitioner | None = Stream(),  # noqa: B008 - a frozen value
        *,
        wanted: EventFilter = EVERYTHING,
        position: int = START,
        boot_target: int = START,
    ) -> Subscription:
        """Declare and start a subscription; active unless there is a boot target."""
        (stored,) = await self.catalog.declare([declared(name, partition_by, wanted=wanted)])
        return await self.catalog.start(stored, Position(position), Position(boot_target))

    async def route(
        self,
        subscription: Subscription,
        partition_by: Partitioner = Stream(),  # noqa: B008 - a frozen value
        *,
        wanted: EventFilter = EVERYTHING,
        upto: int | None = None,
        limit: int = 1000,
    ) -> RouteResult:
        """Route the next batch, up to the head unless told."""
        horizon = await self.reader.head() if upto is None else Position(upto)
        return await self.routing.route(subscription.run, partition_by, wanted, horizon, limit)

    async def claim(
        self, subscription: Subscription, worker: int = 1, *, parts: int = 1000, **limits: Any
    ) -> ClaimGroup | None:
        """Claim what is due, for one lane and 1,000 seconds unless told."""
        return await self.work(worker).claim(self.request(subscription, parts=parts, **limits))

    async def claimed(self, subscription: Subscription, worker: int = 1, **limits: Any) -> ClaimGroup:
        """Claim what is due; something must be."""
        group = await self.claim(subscription, worker, **limits)
        assert group is not None, "nothing was due"
        return group

    async def claim_log(
        self, subscription: Subscription, worker: int = 1, upto: int | None = None
    ) -> ClaimGroup | None:
        """Claim an unpartitioned subscription."""
        horizon = await self.reader.head() if upto is None else Position(upto)
        return await self.work(worker).claim_log(self.request(subscription), horizon)

    def request(
        self,
        subscription: Subscription,
        *,
        lanes: int = 1,
        parts: int = 1000,
        events: int = FAR,
        floor: int = 0,
        ttl: float = 1000.0,
    ) -> ClaimRequest:
        """Return a request with a new lease id."""
        return ClaimRequest(subscription.run, self.new_lease(), lanes, parts, events, floor, ttl)

    async def load(
        self, group: ClaimGroup, worker: int = 1, *, limit: int = 1000, max_events: int = FAR, max_bytes: int = 10**9
    ) -> Loaded:
        """Load a group, without limits unless told."""
        return await self.work(worker).load(group, limit, max_events, max_bytes)

    async def handle_all(self, subscription: Subscription, worker: int = 1) -> list[int]:
        """Claim, load and flush everything that is due; returns the positions in the order of the load."""
        done: list[int] = []
        while (group := await self.claim(subscription, worker)) is not None:
            loaded = await self.load(group, worker)
            done += [event.position for partition in loaded.partitions for event in partition.events]
            await self.work(worker).flush(flush_of(group, loaded.partitions))
        return done

    async def parts(self, subscription: Subscription) -> dict[str, PartitionRow]:
        """Return the partitions of a subscription by key."""
        rows = (await self.image()).partitions.values()
        return {str(row.key): row for row in rows if row.run == subscription.run}

    async def part(self, subscription: Subscription, key: str) -> PartitionId:
        """Return the id of a partition."""
        return (await self.parts(subscription))[key].id

    async def check(self, longest_ttl: timedelta = LONGEST_TTL) -> None:
        """Fail when an invariant of the protocol does not hold."""
        broken = broken_invariants(await self.image(), longest_ttl)
        assert not broken, "\n".join(broken)


def declared(
    name: str,
    partition_by: Partitioner | None = Stream(),  # noqa: B008 - a frozen value
    *,
    app: str = APP,
    wanted: EventFilter = EVERYTHING,
    kind: Kind = Kind.PROJECTOR,
    group: str = "default",
) -> Declaration:
    """Return a declaration that says little."""
    return Declaration(
        name=name,
        app=app,
        kind=kind,
        group=group,
        partitioned=partition_by is not None,
        wanted=wanted,
        start=StartFrom.BEGINNING,
        partitioner=describe(partition_by),
    )


def progress_of(partition: LoadedPartition, count: int | None = None) -> Progress:
    """Return the progress when the first ``count`` events (all when None) of a loaded partition are handled."""
    loaded = sorted([*(event.position for event in partition.events), *partition.vanished])
    positions = tuple(Position(position) for position in loaded[:count])
    return Progress(
        part=partition.part,
        last=positions[-1],
        positions=positions,
        vanished=sum(position in partition.vanished for position in positions),
        recovered=partition.attempts > 0,
        start=partition.position,
    )


def flush_of(
    group: ClaimGroup,
    partitions: Sequence[LoadedPartition],
    mode: FlushMode = FlushMode.END,
    *,
    count: int | None = None,
    slot: int = 0,
    busy_seconds: float = 0.0,
) -> Flush:
    """Return the flush of loaded partitions, of their first ``count`` events if it is given."""
    progress = tuple(progress_of(partition, count) for partition in partitions)
    return Flush(group.run, group.lease, mode, progress, busy_seconds, slot)


def log_flush_of(group: ClaimGroup, loaded: Loaded, to: int | None = None, mode: FlushMode = FlushMode.END) -> Flush:
    """Return the flush of an unpartitioned subscription, up to ``to`` or where the load says."""
    (partition,) = loaded.partitions
    end = partition.to if to is None else Position(to)
    positions = tuple(event.position for event in partition.events if event.position <= end)
    recovered = partition.attempts > 0
    progress = Progress(partition.part, end, positions, recovered=recovered, start=partition.position)
    return Flush(group.run, group.lease, mode, (progress,), partitioned=False)


def failure_of(
    group: ClaimGroup,
    partition: LoadedPartition,
    *,
    state: FailureState = FailureState.BACKING_OFF,
    delay: float | None = 1000.0,
    position: int | None = None,
    error: str = "no such customer",
    slot: int = 0,
) -> KeyFailure:
    """Return the failure of a loaded partition at its first event."""
    return KeyFailure(
        run=group.run,
        lease=group.lease,
        part=partition.part,
        position=partition.events[0].position if position is None else Position(position),
        state=state,
        delay=delay,
        failure_class="recoverable",
        error_type="ValueError",
        error=error,
        slot=slot,
    )


def by_key(loaded: Loaded) -> dict[str, LoadedPartition]:
    """Return the loaded partitions by key."""
    return {str(partition.key): partition for partition in loaded.partitions}


def positions_of(loaded: Loaded) -> dict[str, list[int]]:
    """Return the loaded positions by key."""
    return {str(found.key): [event.position for event in found.events] for found in loaded.partitions}


class MemoryWorld(World):
    """The ports of `headrace.testing`."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock, _respond)
        self._lost: list[Event[Any]] = []
        self.events = self.reader = self.appender = MemoryEvents(self.store)
        self.routing = MemoryRouting(self.store)
        self.catalog = MemoryCatalog(self.store, FixedIdentity(1))
        self.failures = MemoryFailures(self.store)
        self.workers = MemoryWorkers(self.store)
        self.horizon = MemoryHorizonSource(self.store)
        self.hooks = MemoryHooks(self.store)

    def make_work(self, worker: int) -> Work:
        """Return a worker on the shared state."""
        return MemoryWork(self.store, FixedIdentity(worker))

    def make_catalog(self, worker: int) -> Catalog:
        """Return a catalog on the shared state."""
        return MemoryCatalog(self.store, FixedIdentity(worker))

    async def image(self) -> MemoryStore:
        """Return the state itself."""
        return self.store

    async def advance(self, seconds: float) -> None:
        """Advance the manual clock."""
        self.clock.jump(seconds)

    async def idle(self, seconds: float) -> None:
        """Advance the manual clock."""
        self.clock.jump(seconds)

    @asynccontextmanager
    async def cursor_taken(self, subscription: Subscription) -> AsyncIterator[None]:
        """Mark the cursor as taken."""
        with self.store.cursor_taken(subscription.run):
            yield

    async def delete_event(self, position: int) -> None:
        """Delete from the log."""
        self.store.log.delete(Position(position))

    async def go_back(self, to: int) -> None:
        """Tell the log."""
        self._lost = self.store.log.go_back(Position(to))

    async def restore(self) -> None:
        """Tell the log."""
        self.store.log.restore(self._lost)

    async def set_status(self, name: str, status: Status) -> None:
        """Write a status with its epoch."""
        self.store.set_status(name, status)

    async def set_hold(self, subscription: Subscription, key: str, hold: str | None) -> None:
        """Hold or free a key."""
        if hold is None:
            self.store.unhold(subscription.run, PartitionKey(key))
        else:
            self.store.hold(subscription.run, PartitionKey(key), hold)

    async def mark_time(self) -> Any:
        """Return the last number of the order of equal times."""
        return self.store.next_of("turn")

    async def order_by_key(self, mark: Any) -> None:
        """Number again what was written since."""
        names = {row.stored.run: row.stored.name for row in self.store.subscriptions.values()}
        fresh = [row for row in self.store.ready.values() if row.turn > mark and row.due_at == self.store.now()]
        for row in sorted(fresh, key=lambda row: (names[row.run], self.store.partitions[row.part].key)):
            self.store.ready.put(row.part, replace(row, turn=self.store.next_of("turn")))

    async def notes(self) -> list[int]:
        """Look at the committed statements."""
        return [statement.args[0] for statement in self.store.executed if statement.query == NOTE]

    async def leave_hole(self) -> None:
        """Draw a position for nobody."""
        self.events.rollback(self.events.open_append(stream_of("hole", "Hole")))


class NoteRefused(Exception):
    """What the responder raises where PostgreSQL's check constraint does."""


def _respond(statement: Statement) -> list[dict[str, int]]:
    if statement.query == NOTE and statement.args[0] == 0:
        raise NoteRefused
    if statement.query == ANSWER:
        return [{"n": n} for n in (41, 42) if n >= statement.args[0]]
    return []


WorldMaker = Callable[[], AbstractAsyncContextManager[World]]


@asynccontextmanager
async def memory_world() -> AsyncIterator[World]:
    """Yield a world in memory."""
    yield MemoryWorld()
