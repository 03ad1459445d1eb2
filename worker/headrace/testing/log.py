"""The event table in memory: positions from a sequence, open appends that hold the line, holes.

Events become visible when their append commits, in whatever order that happens; that is what makes a
horizon necessary, and a test can have it here without a second connection.
"""

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from headrace.domain.event import EVERYTHING, Event, EventFilter
from headrace.domain.horizon import Holder
from headrace.domain.ids import START, Position


@dataclass(slots=True)
class OpenAppend:
    """A transaction that has drawn positions and has not ended; ends by ``commit`` or ``rollback`` of the log."""

    holder: Holder
    application: str
    since: datetime
    events: list[Event[Any]]


class EventLog:
    """Events by position, versions by stream, and who still has an append open."""

    def __init__(self) -> None:
        self.sequence = START
        self.open: list[OpenAppend] = []
        self.deleted: set[Position] = set()
        self._positions: list[Position] = []
        self._events: dict[Position, Event[Any]] = {}
        self._versions: dict[str, int] = {}
        self._ids: set[UUID] = set()
        self._commits = 0

    def draw(self) -> Position:
        """Draw the next position; it is never drawn again."""
        self.sequence = Position(self.sequence + 1)
        return self.sequence

    def next_commit(self) -> int:
        """Number the next append."""
        self._commits += 1
        return self._commits

    def insert(self, events: Sequence[Event[Any]]) -> None:
        """Make events visible."""
        for event in events:
            insort(self._positions, event.position)
            self._events[event.position] = event
            self._versions[event.stream] = max(event.version, self.version_of(event.stream))
            if event.event_id is not None:
                self._ids.add(event.event_id)

    def delete(self, position: Position) -> None:
        """Take an event out of the table, as a clean-up by hand would."""
        self._positions.remove(position)
        gone = self._events.pop(position)
        self.deleted.add(position)
        left = (event.version for event in self._events.values() if event.stream == gone.stream)
        self._versions[gone.stream] = max(left, default=0)
        if gone.event_id is not None:
            self._ids.discard(gone.event_id)

    def go_back(self, to: Position) -> list[Event[Any]]:
        """Make the log what it was at a position, as a restore of an older backup does; return what is lost."""
        lost = list(self.after(to))
        for event in lost:
            self.delete(event.position)
        self.sequence = to
        return lost

    def restore(self, lost: Sequence[Event[Any]]) -> None:
        """Bring lost events back, and the sequence to the last of them."""
        self.insert(lost)
        self.sequence = max([self.sequence, *(event.position for event in lost)])

    def get(self, position: Position) -> Event[Any] | None:
        """Return the event at a position, None when there is none."""
        return self._events.get(position)

    def version_of(self, stream: str) -> int:
        """Return the last version of a stream, 0 when it is new."""
        return self._versions.get(stream, 0)

    def has_id(self, event_id: UUID) -> bool:
        """Whether an event of that id is stored."""
        return event_id in self._ids

    def after(
        self, position: Position, upto: Position | None = None, wanted: EventFilter = EVERYTHING
    ) -> Iterator[Event[Any]]:
        """Yield the visible, wanted events after one position and at or below another, in order."""
        for place in range(bisect_right(self._positions, position), len(self._positions)):
            found = self._positions[place]
            if upto is not None and found > upto:
                return
            if wanted.wants(event := self._events[found]):
                yield event

    def last_at(self, upto: Position | None = None) -> Position:
        """Return the position of the last visible event, of any type, at or below ``upto``; START without one."""
        place = len(self._positions) if upto is None else bisect_right(self._positions, upto)
        return self._positions[place - 1] if place else START

    def row_count(self) -> int:
        """Return how many events are visible."""
        return len(self._positions)
