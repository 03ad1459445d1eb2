"""The event store's ports in memory: reading by filter, appending with versions and conditions."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid5

from headrace.domain.errors import BadInput, Conflict, UnstorableEvent, UsageError
from headrace.domain.event import (
    EVERYTHING,
    PLAIN,
    AppendCondition,
    Appended,
    Event,
    EventFilter,
    NewEvent,
)
from headrace.domain.horizon import Holder
from headrace.domain.ids import START, PartitionKey, Position
from headrace.domain.json_text import checked_text, json_text
from headrace.ports.events import PAGE_BYTES, PAGE_EVENTS, Page, check_append, check_import
from headrace.testing.log import OpenAppend
from headrace.testing.memory import MemoryStore

EVENT_IDS = UUID("b9d2b1c8-3c43-4a63-8f0e-0f7a8d4f7c11")
"""Namespace of the ids that the store makes, so that they are the same in every run."""

_CheckedEvent = tuple[str, NewEvent, str, str]
"""Stream, event, data and metadata as JSON text."""


class MemoryEvents:
    """Implements ``ports.events.EventReader`` and ``EventAppender``."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def read(
        self,
        after: Position = START,
        upto: Position | None = None,
        wanted: EventFilter = EVERYTHING,
        limit: int = PAGE_EVENTS,
        max_bytes: int = PAGE_BYTES,
    ) -> Page:
        """Return the next wanted events."""
        await self._store.round_trip()
        return read_page(self._store, after, upto, wanted, limit, max_bytes)

    async def head(self) -> Position:
        """Return the position of the last visible event."""
        await self._store.round_trip()
        return self._store.log.last_at()

    async def append(
        self,
        events: Sequence[tuple[str, NewEvent]],
        expected: Mapping[str, int] | None = None,
        condition: AppendCondition | None = None,
    ) -> Appended:
        """Append events in this order, all or none."""
        check_append(events)
        checked = _checked(events)
        await self._store.round_trip()
        self._check_condition(condition)
        self._check_versions(expected or {})
        made = self._make(checked)
        self._store.log.insert(made)
        versions = {event.stream: event.version for event in made}
        return Appended(made[0].position, made[-1].position, versions)

    async def import_chunk(self, events: Sequence[tuple[str, NewEvent]]) -> int:
        """Append the events whose ids are not stored yet."""
        check_import(events)
        checked = _checked(events)
        await self._store.round_trip()
        fresh: dict[UUID, _CheckedEvent] = {}
        for entry in checked:
            if (event_id := entry[1].event_id) is not None and not self._store.log.has_id(event_id):
                fresh.setdefault(event_id, entry)
        self._store.log.insert(self._make(list(fresh.values())))
        return len(fresh)

    def open_append(self, events: Sequence[tuple[str, NewEvent]], application: str = "somebody") -> OpenAppend:
        """Draw positions for events as a transaction does that has not ended: it holds the line until it does."""
        number = self._store.next_of("transactions")
        holder = Holder(vxid=f"9/{number}", pid=10_000 + number)
        opened = OpenAppend(holder, application, self._store.now(), self._make(_checked(events)))
        self._store.log.open.append(opened)
        return opened

    def commit(self, opened: OpenAppend) -> None:
        """End an open append: its events appear."""
        self._store.log.open.remove(opened)
        self._store.log.insert(opened.events)

    def rollback(self, opened: OpenAppend) -> None:
        """End an open append: its positions stay empty for ever."""
        self._store.log.open.remove(opened)

    def _check_condition(self, condition: AppendCondition | None) -> None:
        if condition is None:
            return
        if isinstance(condition.tags, str) or not condition.tags:
            raise UsageError("an append condition needs a list of at least one tag")
        wanted = EventFilter(None if condition.types is None else tuple(condition.types), None, tuple(condition.tags))
        found = next((event for event in self._store.log.after(condition.after, None, wanted) if event.tags), None)
        if found is not None:
            raise Conflict(
                f"the condition does not hold: an event of type {found.type} with the tags {list(condition.tags)} "
                f"is at position {found.position}, after {condition.after}"
            )

    def _check_versions(self, expected: Mapping[str, int]) -> None:
        for stream, version in expected.items():
            found = self._store.log.version_of(stream)
            if found != version:
                raise Conflict(f"stream {stream} is at version {found}, expected was {version}")

    def _make(self, events: Sequence[_CheckedEvent]) -> list[Event[Any]]:
        ids = [event.event_id for _, event, _, _ in events if event.event_id is not None]
        if len(ids) != len(set(ids)) or any(map(self._store.log.has_id, ids)):
            raise Conflict("an event of that id is stored already")
        now, commit, ahead = self._store.now(), self._store.log.next_commit(), Counter[str]()
        made = []
        for stream, new, data, metadata in events:
            position = self._store.log.draw()
            ahead[stream] += 1
            made.append(
                Event[Any](
                    position=position,
                    stream=stream,
                    version=self._store.log.version_of(stream) + ahead[stream],
                    type=new.type,
                    raw_data=data,
                    raw_metadata=metadata,
                    tags=new.tags,
                    event_id=new.event_id or uuid5(EVENT_IDS, str(position)),
                    recorded_at=new.recorded_at or now,
                    appended_at=now,
                    commit_id=commit,
                )
            )
        return made


def read_page(
    store: MemoryStore, after: Position, upto: Position | None, wanted: EventFilter, limit: int, max_bytes: int
) -> Page:
    """Return the next wanted events, by count and bytes; at least one however large."""
    page: list[Event[Any]] = []
    size = 0
    for event in store.log.after(after, upto, wanted):
        if len(page) == limit or (page and size >= max_bytes):
            return Page(tuple(page), page[-1].position, more=True)
        page.append(event)
        size += size_of(event)
    return Page(tuple(page), max(store.log.last_at(upto), after), more=False)


def size_of(event: Event[Any]) -> int:
    """Return the bytes of an event's data."""
    return len(event.raw_data.encode())


def seen_by(event: Event[Any], subscription: str, key: PartitionKey) -> Event[Any]:
    """Return a copy of a stored event as a handler of one partition gets it."""
    copy = event.seen_as(PLAIN)
    copy.subscription, copy.key = subscription, key
    return copy


def _checked(events: Sequence[tuple[str, NewEvent]]) -> list[_CheckedEvent]:
    """Return the events with their JSON texts.

    Raises:
        UnstorableEvent: an event cannot be kept; it carries the event's place.

    """
    checked = []
    for index, (stream, event) in enumerate(events):
        try:
            for text, what in (
                (stream, "the stream"),
                (event.type, "the type"),
                *((tag, "a tag") for tag in event.tags),
            ):
                checked_text(text, what)
            data, metadata = json_text(event.data), json_text(dict(event.metadata), "metadata")
            json.loads(data)
        except (BadInput, ValueError) as error:
            raise UnstorableEvent(index, str(stream), str(event.type), str(error)) from error
        checked.append((stream, event, data, metadata))
    return checked
