"""The event store as readers and appenders see it.

Reading knows nothing of the horizon: who must not miss an event hands the line in as ``upto``, taken
*before* the call, since the rows must come from a later snapshot than the line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.domain.errors import UnstorableEvent, UsageError
from headrace.domain.event import EVERYTHING, AppendCondition, Appended, Event, EventFilter, NewEvent
from headrace.domain.ids import START, Position

PAGE_EVENTS = 1000
PAGE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Page:
    """Events in position order.

    ``last`` is where the next page starts: the last of these events when there are ``more``, else
    the last row of any type at or below ``upto``, which may be stored as a reader's position.
    """

    events: tuple[Event[Any], ...]
    last: Position
    more: bool


def check_append(events: Sequence[tuple[str, NewEvent]]) -> None:
    """Refuse an append of nothing.

    Raises:
        UsageError: there is no event.

    """
    if not events:
        raise UsageError("an append needs at least one event")


def check_import(events: Sequence[tuple[str, NewEvent]]) -> None:
    """Refuse an import that could not be repeated.

    Raises:
        UnstorableEvent: one has no ``event_id``.

    """
    for index, (stream, event) in enumerate(events):
        if event.event_id is None:
            raise UnstorableEvent(index, stream, event.type, "an import needs an event_id, so that it can be repeated")


class EventReader(Protocol):
    """Reads any mapped event table."""

    async def read(
        self,
        after: Position = START,
        upto: Position | None = None,
        wanted: EventFilter = EVERYTHING,
        limit: int = PAGE_EVENTS,
        max_bytes: int = PAGE_BYTES,
    ) -> Page:
        """Return the next wanted events after one position and at or below another (None: all that is visible).

        At most ``limit`` of them, and no more than about ``max_bytes`` of data unless the first is
        larger alone.
        """
        ...

    async def head(self) -> Position:
        """Return the position of the last visible event, START when there is none."""
        ...


class EventAppender(Protocol):
    """Writes our own event table."""

    async def append(
        self,
        events: Sequence[tuple[str, NewEvent]],
        expected: Mapping[str, int] | None = None,
        condition: AppendCondition | None = None,
    ) -> Appended:
        """Append (stream, event) pairs in this order, all or none, in one round trip.

        ``expected`` gives the version that a stream must be at, 0 for a new one. Streams without one
        take the next versions, whatever others append meanwhile.

        Raises:
            Conflict: a stream is at another version, the condition does not hold, or an event id is
                stored already.
            BadInput: an event cannot be stored; the message names it.

        """
        ...

    async def import_chunk(self, events: Sequence[tuple[str, NewEvent]]) -> int:
        """Append events that all have an id, passing over ids that are stored; return how many were added.

        All or nothing; safe to repeat, and for several importers at once.

        Raises:
            BadInput: an event cannot be stored, or has no id; the message names it.

        """
        ...
