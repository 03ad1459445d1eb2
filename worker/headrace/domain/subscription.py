"""A subscription: what was declared, where it stands, and which moves are legal.

Status lives in the subscription row alone; a partition shows its main's. Who sets a status is
written beside it. Transitions are methods that refuse illegal moves; a store only persists what
they return.
"""

import json
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from hashlib import sha256

from headrace.domain.errors import NotAllowed
from headrace.domain.event import EventFilter
from headrace.domain.ids import Position, Run


class Kind(StrEnum):
    """What a subscriber does; decides defaults and whether it shares the flush transaction."""

    PROJECTOR = "projector"
    REACTOR = "reactor"
    SAGA = "saga"
    SINK = "sink"

    @property
    def transactional(self) -> bool:
        """Whether handlers run inside the transaction that flushes them."""
        return self is Kind.PROJECTOR


class Status(StrEnum):
    """Where a subscription stands.

    NEW: declared, setup not done. BOOTING: first catch-up up to a boot target. ACTIVE: follows the
    log. PAUSED: set by a person. FINISHED: a run-once subscription at its end. DETACHED: nobody
    declares it any more. ERROR: stands still and probes by itself. FAILED: a hook used up its
    retries. RESETTING: a reset is under way; a crash leaves it there to go on.
    """

    NEW = "new"
    BOOTING = "booting"
    ACTIVE = "active"
    PAUSED = "paused"
    FINISHED = "finished"
    DETACHED = "detached"
    ERROR = "error"
    FAILED = "failed"
    RESETTING = "resetting"

    @property
    def is_running(self) -> bool:
        """Whether routing and handling go on in this status."""
        return self in {Status.BOOTING, Status.ACTIVE}


class StartFrom(StrEnum):
    """Where a subscription without a position starts."""

    BEGINNING = "beginning"
    NOW = "now"


Start = StartFrom | Position
"""A named start, or the position after which to start."""


class ErrorClass(StrEnum):
    """Why a main stands in error: an event without a key, a log that went back, or the store or target gone."""

    KEY = "key"
    LOG = "log"
    SETUP = "setup"
    SYSTEMIC = "systemic"


@dataclass(frozen=True, slots=True)
class Declaration:
    """What the code says of a subscription; stored at setup and compared later."""

    name: str
    app: str
    kind: Kind
    group: str
    partitioned: bool
    wanted: EventFilter
    start: Start
    partitioner: str = ""
    remove_idle_after: float | None = None
    replayable: bool = True

    @property
    def digest(self) -> str:
        """Return 16 hexadecimal digits that two declarations share if they route and order the same events alike.

        Two versions of an app whose digests differ must not work on the subscription side by side: one would pass
        over what only the other wants.
        """
        wanted = (self.wanted.types, self.wanted.streams, self.wanted.tags)
        facts = [self.partitioned, self.partitioner, *(None if w is None else sorted(set(w)) for w in wanted)]
        return sha256(json.dumps(facts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Subscription:
    """The stored row of a subscription; ``declared`` is the digest of the declaration in charge."""

    name: str
    app: str
    kind: Kind
    group: str
    partitioned: bool
    run: Run
    status: Status
    epoch: int
    prev_status: Status | None = None
    error_class: ErrorClass | None = None
    reason: str | None = None
    retry_at: datetime | None = None
    tries: int = 0
    declared: str = ""

    def booted(self) -> "Subscription":
        """Move from new to booting (set-up is done, history follows)."""
        return replace(self._moved(Status.BOOTING, {Status.NEW}), tries=0)

    def activated(self) -> "Subscription":
        """Move to active: the boot target is reached, or there was no history to boot."""
        return replace(self._moved(Status.ACTIVE, {Status.NEW, Status.BOOTING}), tries=0)

    def stopped_by(self, error_class: ErrorClass, reason: str) -> "Subscription":
        """Move to error, keeping where to return; a second error of a standing main only counts a try.

        A log that went back stays the reason until that is looked at: every other cause is tried again by itself.
        """
        if self.status is Status.ERROR:
            if self.error_class is ErrorClass.LOG and error_class is not ErrorClass.LOG:
                return replace(self, tries=self.tries + 1)
            return replace(self, error_class=error_class, reason=reason, tries=self.tries + 1)
        moved = self._moved(Status.ERROR, {Status.NEW, Status.BOOTING, Status.ACTIVE})
        return replace(moved, prev_status=self.status, error_class=error_class, reason=reason, tries=self.tries + 1)

    def recovered(self) -> "Subscription":
        """Leave error for the status it came from; the tries count on until that has led somewhere."""
        moved = self._moved(self.prev_status or Status.ACTIVE, {Status.ERROR})
        return replace(moved, prev_status=None, error_class=None, reason=None, retry_at=None)

    def _moved(self, to: Status, allowed: set[Status]) -> "Subscription":
        if self.status not in allowed:
            raise NotAllowed(f"subscription {self.name!r} is {self.status}: it cannot become {to} from there")
        return replace(self, status=to, epoch=self.epoch + 1)
