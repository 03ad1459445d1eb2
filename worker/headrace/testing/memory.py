"""The one state that all in-memory ports share: the tables of the protocol, without a database.

It exists for unit tests of subscribers and of the engine. Everything is deterministic and belongs to
one event loop: statements happen one after the other, time stands still until a manual clock is
advanced, and ties of equal times are broken by the order of writing. It must never become a second
design: a conformance suite holds it equal to PostgreSQL, and where the two differ it is this one
that changes.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from headrace.domain.errors import HeadraceError, NotAllowed, Unavailable
from headrace.domain.ids import START, LeaseId, PartitionId, PartitionKey, Position, Run
from headrace.domain.subscription import Declaration, Status, Subscription
from headrace.ports.clock import Clock
from headrace.ports.work import FailureState
from headrace.ports.workers import Beat
from headrace.testing.clock import ManualClock
from headrace.testing.connection import Responder, Statement
from headrace.testing.log import EventLog
from headrace.testing.tables import Journal, Table

LEASE_IS_GONE = "HR001"
PARTITION_IS_GONE = "HR002"
ENTRY_IS_GONE = "HR003"
READY_IS_GONE = "HR004"

FIRST_SLICE = PartitionId(0)
LIVE_BEATS = 3


class BrokenProtocol(HeadraceError):
    """A write that the protocol makes impossible; ``sqlstate`` is what PostgreSQL's functions raise for it."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """What is stored of a subscription, the declaration in charge, and the digests of all in order of first sight."""

    stored: Subscription
    declared: Declaration
    streak: int = 0
    declarations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CursorRow:
    """How far a run is routed; ``sweep`` is the last partition id that idle removal looked at."""

    position: Position
    boot_target: Position
    routed: int = 0
    activated: int = 0
    created: int = 0
    sweep: PartitionId = FIRST_SLICE


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One key of one run."""

    id: PartitionId
    run: Run
    key: PartitionKey
    position: Position
    touched_at: datetime
    hold: str | None = None


@dataclass(frozen=True, slots=True)
class ReadyRow:
    """A partition with inbox entries. ``due_at`` None is for ever; ``turn`` orders equal times.

    ``attempts``: -1 when a person has resumed the key and nothing of its new budget is used.
    """

    part: PartitionId
    run: Run
    backlog: int
    first_pos: Position
    due_at: datetime | None
    turn: int
    lease: LeaseId | None = None
    attempts: int = 0
    takeovers: int = 0

    def is_due(self, now: datetime) -> bool:
        """Whether a claim may take it."""
        return self.lease is None and self.due_at is not None and self.due_at <= now


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """The right of one worker to a claim group; the row's existence is the fence."""

    id: LeaseId
    run: Run
    purpose: str
    owner: UUID
    worker: str
    parts: int
    events: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class FailureRow:
    """Why and since when a key fails."""

    part: PartitionId
    run: Run
    position: Position
    state: FailureState
    attempts: int
    failure_class: str
    error_type: str
    error: str
    first_failed_at: datetime
    failed_at: datetime
    next_retry_at: datetime | None
    worker: str


@dataclass(frozen=True, slots=True)
class CountersRow:
    """What one slot of a run counted."""

    handled: int = 0
    drained: int = 0
    skipped: int = 0
    parked: int = 0
    busy_us: int = 0

    def plus(self, other: "CountersRow") -> "CountersRow":
        """Add up."""
        return CountersRow(
            self.handled + other.handled,
            self.drained + other.drained,
            self.skipped + other.skipped,
            self.parked + other.parked,
            self.busy_us + other.busy_us,
        )


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """The last beat of a worker, and since when it has beaten without a gap."""

    beat: Beat
    beat_at: datetime
    steady_since: datetime

    def is_live(self, now: datetime) -> bool:
        """Whether its last beat is younger than three of its own intervals."""
        return now - self.beat_at < LIVE_BEATS * timedelta(seconds=self.beat.every)


@dataclass(frozen=True, slots=True)
class AuditRow:
    """Who did what, and why."""

    at: datetime
    who: str
    verb: str
    subscription: str
    key: PartitionKey | None
    position: Position | None
    why: str


class MemoryStore:
    """All tables, the clock and the sequences; ports are thin views of it.

    ``is_available = False`` makes every call of every port raise Unavailable, as a database that is
    down does. ``respond`` answers what handlers read; ``executed`` are their statements that were
    committed. Tables may be read freely in tests; they are written by ports only.
    """

    def __init__(self, clock: Clock | None = None, respond: Responder | None = None) -> None:
        self.clock: Clock = clock or ManualClock()
        self.respond = respond
        self.executed: list[Statement] = []
        self.is_available = True
        self.journal = Journal()
        self.log = EventLog()
        self.subscriptions: Table[str, SubscriptionRow] = Table(self.journal)
        self.cursors: Table[Run, CursorRow] = Table(self.journal)
        self.partitions: Table[PartitionId, PartitionRow] = Table(self.journal)
        self.keys: Table[tuple[Run, PartitionKey], PartitionId] = Table(self.journal)
        self.inbox: Table[PartitionId, tuple[Position, ...]] = Table(self.journal)
        self.ready: Table[PartitionId, ReadyRow] = Table(self.journal)
        self.leases: Table[LeaseId, LeaseRow] = Table(self.journal)
        self.failures: Table[PartitionId, FailureRow] = Table(self.journal)
        self.counters: Table[tuple[Run, int], CountersRow] = Table(self.journal)
        self.workers: Table[UUID, WorkerRow] = Table(self.journal)
        self.audit: list[AuditRow] = []
        self._sequences: Counter[str] = Counter()
        self._cursors_taken: set[Run] = set()
        self._leases_in_use: list[tuple[LeaseId, Callable[[], bool]]] = []
        self._freed = asyncio.Event()

    async def round_trip(self) -> None:
        """Let others run, as any statement does.

        Raises:
            Unavailable: the store was switched off.

        """
        await asyncio.sleep(0)
        if not self.is_available:
            raise Unavailable("the in-memory store is switched off: set is_available to True")

    def now(self) -> datetime:
        """Return the one time of the store."""
        return self.clock.now()

    def later(self, seconds: float) -> datetime:
        """Return the time in ``seconds``."""
        return self.now() + timedelta(seconds=seconds)

    def next_of(self, sequence: str) -> int:
        """Draw the next number; like a sequence it is never given back."""
        self._sequences[sequence] += 1
        return self._sequences[sequence]

    def subscription_of(self, run: Run) -> SubscriptionRow | None:
        """Return the subscription whose present run this is."""
        return next((row for row in self.subscriptions.values() if row.stored.run == run), None)

    def is_running(self, run: Run, declared: str | None = None) -> bool:
        """Whether the run's subscription is booting or active, and the declaration of that digest in charge."""
        row = self.subscription_of(run)
        in_charge = row is not None and declared in {None, row.stored.declared}
        return row is not None and in_charge and row.stored.status.is_running

    def live_beats(self) -> Iterator[Beat]:
        """Iterate over the last beats of workers that live: younger than three of their own intervals."""
        now = self.now()
        for row in self.workers.values():
            if row.is_live(now):
                yield row.beat

    def line_of(self, run: Run, horizon: Position) -> Position:
        """Return how far the run may go: to the horizon, while booting not beyond its boot target."""
        row, cursor = self.subscription_of(run), self.cursors.get(run)
        is_booting = row is not None and row.stored.status is Status.BOOTING
        return min(horizon, cursor.boot_target) if is_booting and cursor is not None else horizon

    def is_behind(self, position: Position, line: Position) -> bool:
        """Whether an event of any type lies above the position, at or below the line."""
        return next(self.log.after(position, line), None) is not None

    def ready_of(self, run: Run) -> list[ReadyRow]:
        """Return the ready rows of a run, by partition."""
        return sorted((row for row in self.ready.values() if row.run == run), key=lambda row: row.part)

    def leased_by(self, lease: LeaseId) -> list[ReadyRow]:
        """Return the ready rows that a lease holds, by partition."""
        return sorted((row for row in self.ready.values() if row.lease == lease), key=lambda row: row.part)

    def set_due(self, row: ReadyRow, due_at: datetime | None, **changes: object) -> None:
        """Give a ready row a new due time, behind everything that was due at the same time before it."""
        self.ready.put(row.part, replace(row, due_at=due_at, turn=self.next_of("turn"), **changes))  # type: ignore[arg-type]

    def count(self, run: Run, slot: int, counted: CountersRow) -> None:
        """Add to the counters of a run."""
        self.counters.put((run, slot), self.counters.get((run, slot), CountersRow()).plus(counted))

    def make_partition(self, run: Run, key: PartitionKey, position: Position = START) -> PartitionRow:
        """Create the partition of a key that has none."""
        row = PartitionRow(PartitionId(self.next_of("partitions")), run, key, position, self.now())
        self.partitions.put(row.id, row)
        self.keys.put((run, key), row.id)
        return row

    def drop_partition(self, row: PartitionRow) -> None:
        """Remove a partition."""
        self.partitions.drop(row.id)
        self.keys.drop((row.run, row.key))

    def set_status(self, name: str, status: Status) -> None:
        """Write a status as a command would, for example ``pause``."""
        row = self.subscriptions[name]
        stored = replace(row.stored, status=status, prev_status=row.stored.status, epoch=row.stored.epoch + 1)
        self.subscriptions.put(name, replace(row, stored=stored))

    def hold(self, run: Run, key: PartitionKey, why: str = "paused") -> None:
        """Hold a key as ``pause NAME#KEY`` does; one that has no partition yet gets it.

        Raises:
            NotAllowed: the subscription was not set up.

        """
        if run not in self.cursors:
            raise NotAllowed(f"run {run} has no keys yet: set the subscription up first")
        known = self.keys.get((run, key))
        row = self.make_partition(run, key) if known is None else self.partitions[known]
        self.partitions.put(row.id, replace(row, hold=why))
        ready = self.ready.get(row.id)
        if ready is not None and ready.lease is None:
            self.set_due(ready, None)

    def unhold(self, run: Run, key: PartitionKey) -> bool:
        """Let a held key go on, from its own next try if it fails; False when it was not held."""
        known = self.keys.get((run, key))
        if known is None or self.partitions[known].hold is None:
            return False
        self.partitions.put(known, replace(self.partitions[known], hold=None))
        ready, failure = self.ready.get(known), self.failures.get(known)
        if ready is not None and ready.lease is None:
            self.set_due(ready, self.now() if failure is None else failure.next_retry_at)
        return True

    @contextmanager
    def cursor_taken(self, run: Run) -> Iterator[None]:
        """Hold the cursor of a run as another router or a command would."""
        self._cursors_taken.add(run)
        try:
            yield
        finally:
            self._cursors_taken.discard(run)
            self._freed.set()

    def is_cursor_taken(self, run: Run) -> bool:
        """Whether somebody else holds the cursor of the run."""
        return run in self._cursors_taken

    @contextmanager
    def lease_in_use(self, lease: LeaseId, is_open: Callable[[], bool]) -> Iterator[None]:
        """Hold the fence while ``is_open()``, at most to the end of the block: nobody can delete the lease."""
        entry = (lease, is_open)
        self._leases_in_use.append(entry)
        try:
            yield
        finally:
            self._leases_in_use.remove(entry)
            self._freed.set()

    def is_lease_in_use(self, lease: LeaseId) -> bool:
        """Whether a transaction with that lease is open."""
        return any(found == lease and is_open() for found, is_open in self._leases_in_use)

    async def wait_for_lease(self, lease: LeaseId) -> None:
        """Wait until no transaction holds the lease."""
        await self._wait_while(lambda: self.is_lease_in_use(lease))

    async def wait_for_cursor(self, run: Run) -> None:
        """Wait until nobody else holds the cursor."""
        await self._wait_while(lambda: self.is_cursor_taken(run))

    async def _wait_while(self, condition: Callable[[], bool]) -> None:
        while condition():
            self._freed.clear()
            await self._freed.wait()
