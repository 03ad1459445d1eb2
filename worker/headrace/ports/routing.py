"""Routing: every event once into the inbox of its partition.

The cursor row of a run is the router's exclusion and its fence. A call that finds somebody else
routing returns at once; a call that moves the cursor has inserted exactly as many inbox entries as
it says, in the same transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from headrace.domain.event import Event, EventFilter
from headrace.domain.ids import Position, Run


class RouteOutcome(Enum):
    """What came of one try to route a batch."""

    ROUTED = "routed"
    """The cursor was ours; it may or may not have moved."""
    BUSY = "busy"
    """Somebody else holds the cursor row."""
    STANDING = "standing"
    """The subscription is not booting or active, or another declaration is in charge of it."""
    MOVED = "moved"
    """The cursor was not where the batch was read from: throw the batch away."""


@dataclass(frozen=True, slots=True)
class BadKey:
    """The event before which the cursor stopped, because it has no usable key.

    ``problem`` is a sentence for people that names position, type and fix.
    """

    position: Position
    type: str
    problem: str


@dataclass(frozen=True, slots=True)
class RouteResult:
    """One routed batch. ``complete`` tells that nothing wanted is left at or below the horizon given."""

    outcome: RouteOutcome
    position: Position = Position(0)
    routed: int = 0
    activated: int = 0
    created: int = 0
    complete: bool = False
    bad: BadKey | None = None


@dataclass(frozen=True, slots=True)
class Unrouted:
    """A batch read for a partitioner in Python. ``last`` is the last event row looked at, of any type."""

    outcome: RouteOutcome
    position: Position = Position(0)
    last: Position = Position(0)
    events: Sequence[Event[Any]] = field(default_factory=tuple)
    complete: bool = False


class Routing(Protocol):
    """The router's port.

    ``declared`` is the digest of the declaration that the caller works by: when another one is in charge of the run the
    outcome is STANDING and nothing is stored. None asks nothing.
    """

    async def route(
        self,
        run: Run,
        partitioner: object,
        wanted: EventFilter,
        horizon: Position,
        limit: int,
        declared: str | None = None,
    ) -> RouteResult:
        """Route up to ``limit`` wanted events at or below ``horizon`` by a built-in partitioner, in the store.

        Events whose key is None are passed over. Stops before an event with an unusable key and
        reports it. While booting the boot target limits the horizon.
        """
        ...

    async def read_unrouted(
        self,
        run: Run,
        wanted: EventFilter,
        horizon: Position,
        limit: int,
        max_bytes: int,
        declared: str | None = None,
    ) -> Unrouted:
        """Read the next wanted events without any lock, for a partitioner in Python."""
        ...

    async def store_routes(
        self,
        run: Run,
        read_from: Position,
        last: Position,
        routes: Sequence[tuple[Position, str]],
        declared: str | None = None,
    ) -> RouteResult:
        """Insert the given (position, key) pairs and move the cursor from ``read_from`` to ``last``.

        Compare and swap: when the cursor is elsewhere the outcome is MOVED and nothing is stored.
        """
        ...

    async def pass_over(self, run: Run, position: Position) -> bool:
        """Move the cursor onto ``position`` without routing it, if it is the next wanted event."""
        ...

    async def sweep(self, run: Run, idle_seconds: float, slice_size: int) -> int:
        """Remove idle partitions among the next ``slice_size`` ids; how many went, -1 if the cursor is taken."""
        ...
