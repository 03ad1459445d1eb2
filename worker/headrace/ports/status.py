"""What a person who asks for the status gets to see, as values.

The figures are those of the published view ``stats_v1``; beside them stands what explains why something does not move.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from headrace.domain.ids import PartitionKey, Position
from headrace.domain.subscription import ErrorClass, Kind, Status
from headrace.ports.work import FailureState


@dataclass(frozen=True, slots=True)
class Standing:
    """One subscription: the columns of ``stats_v1`` under their names, then its own row's account of itself.

    ``inboxed``, ``pending_partitions``, ``oldest_seconds`` and ``largest_partition`` speak of keys that are due or
    leased; ``waiting`` counts events behind keys that are parked, held or backing off. None: not known now.
    ``notes`` are on its event table.
    """

    subscription: str
    app: str
    group_name: str
    status: Status
    status_reason: str | None
    position: Position
    head: Position | None
    horizon_held_seconds: float | None
    unrouted: int
    held: int
    inboxed: int
    waiting: int
    in_flight: int
    oldest_seconds: float | None
    pending_partitions: int
    touched_partitions: int
    largest_partition: int
    parked: int
    next_due_at: datetime | None
    arrivals_total: int
    processed_total: int
    busy_seconds_total: float
    workers: int
    capacity: int
    sampled_at: datetime
    kind: Kind
    partitioned: bool
    error_class: ErrorClass | None
    retry_at: datetime | None
    backing_off: int
    exact: bool
    notes: tuple[str, ...] = ()

    @property
    def inbox(self) -> int:
        """All events that are routed and not handled."""
        return self.inboxed + self.waiting

    @property
    def backlog(self) -> int:
        """Events that could be worked on now."""
        return self.unrouted + self.inboxed


@dataclass(frozen=True, slots=True)
class PartitionStanding:
    """One partition that has work. ``worker`` holds it until ``expires_at``; ``hold`` is why a person keeps it."""

    key: PartitionKey
    position: Position
    backlog: int
    first_position: Position
    due_at: datetime | None
    attempts: int
    takeovers: int
    hold: str | None
    worker: str | None
    expires_at: datetime | None
    failure: FailureState | None
    error: str | None


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A process whose heartbeat is fresh."""

    name: str
    app: str
    version: str
    lanes: int
    subscriptions: tuple[str, ...]
    started_at: datetime
    beat_seconds: float


class StatusReader(Protocol):
    """The port of ``headrace status`` and of a worker's gauges; only reads."""

    async def standings(self, names: Sequence[str] | None = None) -> list[Standing]:
        """Return the named subscriptions (all when None), by name."""
        ...

    async def partitions(self, name: str, limit: int) -> list[PartitionStanding]:
        """Return at most ``limit`` partitions with work, the one that stands furthest back first."""
        ...

    async def workers(self) -> list[LiveWorker]:
        """Return the live workers of this database, by application and name."""
        ...
