"""Facts that the engine reports, each a small immutable value.

Metrics, logs and tests are observers of these; the engine itself writes no log line.
"""

from dataclasses import dataclass
from enum import StrEnum

from headrace.domain.ids import LeaseId, PartitionKey, Position, Run


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """Root of all facts; ``subscription`` is '' where a fact concerns the whole process."""

    subscription: str


@dataclass(frozen=True, slots=True)
class Routed(EngineEvent):
    """A batch was routed."""

    events: int
    activated: int
    position: Position


@dataclass(frozen=True, slots=True)
class Claimed(EngineEvent):
    """A claim group was taken by a lane."""

    lane: int
    lease: LeaseId
    partitions: int
    backlog: int


@dataclass(frozen=True, slots=True)
class Handled(EngineEvent):
    """Handlers of a group (or of a part of it) ran; seconds of handler time."""

    lane: int
    events: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Flushed(EngineEvent):
    """A flush committed."""

    lane: int
    lease: LeaseId
    events: int
    partitions: int
    seconds: float


@dataclass(frozen=True, slots=True)
class GroupRolledBack(EngineEvent):
    """A member of the group failed; its members are done one by one now."""

    lease: LeaseId
    error: str


@dataclass(frozen=True, slots=True)
class GroupAbandoned(EngineEvent):
    """A group ended in an error that is no key's; its lease is given back and its keys are due again."""

    lease: LeaseId
    error: str


@dataclass(frozen=True, slots=True)
class KeyFailed(EngineEvent):
    """A key failed at an event; state as in the failures table, delay in seconds (None: waits for a person)."""

    key: PartitionKey
    position: Position
    event_type: str
    state: str
    attempts: int
    delay: float | None
    error: str


@dataclass(frozen=True, slots=True)
class KeySlowed(EngineEvent):
    """A key asked for a pause, or its transaction was given up by the database."""

    key: PartitionKey
    delay: float
    reason: str


@dataclass(frozen=True, slots=True)
class KeysHeld(EngineEvent):
    """Held keys left their group."""

    keys: int


@dataclass(frozen=True, slots=True)
class EventsVanished(EngineEvent):
    """Routed events are no longer in the event table; their inbox entries were deleted."""

    key: PartitionKey
    first: Position
    last: Position
    count: int


class LossReason(StrEnum):
    """How a worker learned that a lease was no longer its own."""

    FENCE = "fence"
    SESSION = "session"
    RENEWAL = "renewal"


@dataclass(frozen=True, slots=True)
class LeaseWasLost(EngineEvent):
    """A stale owner was refused; nothing it did for the group is stored."""

    lease: LeaseId
    reason: LossReason


@dataclass(frozen=True, slots=True)
class TookOver(EngineEvent):
    """An expired lease of some worker was taken over; its keys are due again."""

    lease: LeaseId
    run: Run
    worker: str
    partitions: int


@dataclass(frozen=True, slots=True)
class MainStopped(EngineEvent):
    """The main went into error, or its next try failed too."""

    error_class: str
    reason: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class StatusChanged(EngineEvent):
    """The subscription has a new status."""

    status: str


@dataclass(frozen=True, slots=True)
class StoodBack(EngineEvent):
    """Another version of the app is in charge of the subscription; ``declared`` is the digest of its declaration."""

    declared: str


@dataclass(frozen=True, slots=True)
class TookCharge(EngineEvent):
    """This version's declaration is in charge again: no live worker declares the other one any more."""


@dataclass(frozen=True, slots=True)
class IdleRemoved(EngineEvent):
    """Idle partitions were removed."""

    partitions: int


@dataclass(frozen=True, slots=True)
class HorizonHeld(EngineEvent):
    """An open append holds the line; everything above it waits. ``since_seconds`` is its age."""

    position: Position
    head: Position
    holder: str
    since_seconds: float


@dataclass(frozen=True, slots=True)
class WaitsForRetries(EngineEvent):
    """All else is handled; who waits for the end of the work waits for keys that back off."""


@dataclass(frozen=True, slots=True)
class DatabaseLost(EngineEvent):
    """The database did not answer; tried again in ``retry_in`` seconds."""

    error: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class DatabaseFound(EngineEvent):
    """The database answers again."""


@dataclass(frozen=True, slots=True)
class Draining(EngineEvent):
    """The worker finishes what is claimed and claims no more."""

    leases: int
