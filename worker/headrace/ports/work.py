"""Work: claim groups of partitions under a lease, load, flush, give back.

The lease row is the fence: whatever writes for a group first finds that row or raises LeaseLost.
A lease's set of partitions only shrinks. Nothing here looks at expiry except take-over.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from headrace.domain.event import Event, EventFilter
from headrace.domain.ids import LeaseId, PartitionId, PartitionKey, Position, Run
from headrace.ports.connection import Connection

ALONE_FROM = 2
"""From so many take-overs on a partition is claimed alone: it may be what killed its owners."""


@dataclass(frozen=True, slots=True)
class ClaimedPart:
    """One partition of a claim group, as the claim saw it."""

    part: PartitionId
    backlog: int
    attempts: int
    takeovers: int


@dataclass(frozen=True, slots=True)
class ClaimGroup:
    """The partitions that one lane holds together under one lease."""

    run: Run
    lease: LeaseId
    parts: tuple[ClaimedPart, ...]

    @property
    def backlog(self) -> int:
        """How many inboxed events the claim saw; 0 for an unpartitioned run."""
        return sum(part.backlog for part in self.parts)


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """How much to claim of one run.

    ``lanes`` live lanes share what is due; ``parts`` and ``events`` are ceilings, ``floor`` is the
    number of events below which a share is not cut. ``ttl`` in seconds.
    """

    run: Run
    lease: LeaseId
    lanes: int
    parts: int
    events: int
    floor: int
    ttl: float

    def leaves_nothing(self, group: ClaimGroup) -> bool:
        """Tell whether a group holds all that was due, because no bound of this request has cut it."""
        return (
            self.lanes == 1
            and len(group.parts) < self.parts
            and group.backlog < self.events
            and all(part.takeovers < ALONE_FROM for part in group.parts)
        )


@dataclass(frozen=True, slots=True)
class LoadedPartition:
    """The loaded events of one partition, in position order.

    ``vanished`` are inboxed positions whose event is no longer in the table. ``to`` is only used by
    an unpartitioned subscription: where its position may move when all events are handled.
    """

    part: PartitionId
    key: PartitionKey
    position: Position
    attempts: int
    takeovers: int
    events: tuple[Event[Any], ...]
    vanished: tuple[Position, ...] = ()
    to: Position = Position(0)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a claim group has to do.

    ``standing``: the subscription is not running, or another declaration is in charge: give the lease back.
    """

    partitions: tuple[LoadedPartition, ...] = ()
    held: tuple[PartitionId, ...] = ()
    standing: bool = False


class FlushMode(StrEnum):
    """What a flush does with the lease."""

    END = "end"
    """Every partition of the lease is freed and the lease deleted."""
    PART = "part"
    """The listed partitions are freed; the lease stays for the others."""
    KEEP = "keep"
    """The listed partitions stay leased."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one partition came: exactly these positions were handled (or had vanished).

    ``last`` is the new position; for an unpartitioned subscription it may lie beyond the last
    handled event.
    """

    part: PartitionId
    last: Position
    positions: tuple[Position, ...]
    vanished: int = 0
    recovered: bool = False
    start: Position = Position(0)


@dataclass(frozen=True, slots=True)
class Flush:
    """Everything one flush writes."""

    run: Run
    lease: LeaseId
    mode: FlushMode
    progress: tuple[Progress, ...]
    busy_seconds: float = 0.0
    slot: int = 0
    partitioned: bool = True


@dataclass(frozen=True, slots=True)
class Flushed:
    """What the flush learned on its way: how many partitions ran dry, and the main's status and epoch."""

    drained: int
    status: str
    epoch: int
    streak: int


class FailureState(StrEnum):
    """What a failing key waits for."""

    BACKING_OFF = "backing off"
    """Its next retry, within the budget."""
    PARKED = "parked"
    """Its next automatic retry; the budget is spent."""
    WAITING = "waiting"
    """A person: resume or skip."""


@dataclass(frozen=True, slots=True)
class KeyFailure:
    """A key that failed at an event. ``delay`` in seconds; None waits for a person."""

    run: Run
    lease: LeaseId
    part: PartitionId
    position: Position
    state: FailureState
    delay: float | None
    failure_class: str
    error_type: str
    error: str
    slot: int = 0


class WorkTransaction(Protocol):
    """One fenced transaction: handlers' writes, flush and failures commit or vanish together."""

    @property
    def connection(self) -> Connection:
        """What handlers write through; deferred statements wait in it until ``settle``."""
        ...

    async def settle(self) -> None:
        """Send what handlers have deferred so far; raises the database's error for it."""
        ...

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """Settle before it; roll back to it when the body raises, and drop what the body deferred.

        Raises:
            NotAllowed: the body has swallowed the error of a statement, so nothing of it can be kept.

        """
        ...

    async def flush(self, flush: Flush) -> Flushed:
        """Settle, then write positions, inbox, ready rows and counters."""
        ...

    async def fail(self, failure: KeyFailure) -> int:
        """Record the failure, free the key for later; returns its attempts so far."""
        ...

    async def slow(self, part: PartitionId, delay: float) -> None:
        """Free the key for ``delay`` seconds without counting an attempt."""
        ...


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A lease that had expired and was taken from its owner."""

    lease: LeaseId
    run: Run
    worker: str
    parts: int


@dataclass(frozen=True, slots=True)
class DueRun:
    """What the probe says of one run: work due now, or in how many seconds next (None: nothing waits)."""

    run: Run
    status: str
    epoch: int
    due: bool
    next_due_in: float | None = None


class Work(Protocol):
    """The lanes' port; one instance per process, with one owner id."""

    async def due(self, runs: Sequence[Run]) -> list[DueRun]:
        """Look, in one statement, which of the partitioned runs have partitions due and unleased."""
        ...

    async def claim(self, request: ClaimRequest) -> ClaimGroup | None:
        """Claim due partitions of a partitioned run, oldest first; None when nothing is due."""
        ...

    async def claim_log(self, request: ClaimRequest, horizon: Position) -> ClaimGroup | None:
        """Claim the one partition of an unpartitioned run when events lie between its position and ``horizon``."""
        ...

    async def load(
        self, group: ClaimGroup, limit: int, max_events: int, max_bytes: int, declared: str | None = None
    ) -> Loaded:
        """Load the inboxed events of a group: at most ``limit`` a partition, and both budgets together.

        At least one event is loaded however large it is. ``declared`` is the digest of the declaration that the caller
        works by: nothing is loaded, and the result stands, when another one is in charge of the run. None asks nothing.
        """
        ...

    async def load_log(
        self,
        group: ClaimGroup,
        wanted: EventFilter,
        horizon: Position,
        limit: int,
        max_bytes: int,
        declared: str | None = None,
    ) -> Loaded:
        """Load the next wanted events of an unpartitioned run, in global order; ``declared`` as in ``load``."""
        ...

    def begin(self, group: ClaimGroup, idle_seconds: float) -> AbstractAsyncContextManager[WorkTransaction]:
        """Open the group's transaction; its first statement is the fence.

        ``idle_seconds``: the server ends the session when it is idle in the transaction that long.

        Raises:
            LeaseLost: the lease row is gone.

        """
        ...

    async def flush(self, flush: Flush) -> Flushed:
        """Fence and flush in a transaction of their own (reactors)."""
        ...

    async def fail(self, failure: KeyFailure) -> int:
        """Fence and record a failure in a transaction of its own (reactors)."""
        ...

    async def slow(self, lease: LeaseId, part: PartitionId, delay: float) -> None:
        """Fence and free a key for ``delay`` seconds in a transaction of its own (reactors)."""
        ...

    async def suspect(self, lease: LeaseId, part: PartitionId) -> None:
        """Fence and count one more owner of a key with ``ALONE_FROM`` take-overs or more, before it is handled.

        From that number on a take-over counts nothing by itself: the lease may only have waited behind other work.
        Whatever is then written for the key sets the count back.
        """
        ...

    async def absolve(self, lease: LeaseId, part: PartitionId) -> None:
        """Fence and take back what ``suspect`` counted: the owner lives, and nothing was written for the key."""
        ...

    async def hold(self, lease: LeaseId, parts: Sequence[PartitionId]) -> int:
        """Let held partitions leave the group; how many did."""
        ...

    async def release(self, leases: Sequence[LeaseId]) -> None:
        """Give leases back; the work that was not flushed is due again."""
        ...

    async def renew(self, leases: Sequence[LeaseId], ttl: float) -> set[LeaseId]:
        """Extend leases by ``ttl`` seconds from now; returns those that were extended."""
        ...

    async def take_over(self) -> list[TakenOver]:
        """Take every expired lease whose owner has no transaction open; its partitions are due again."""
        ...
