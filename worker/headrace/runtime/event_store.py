"""The event store for applications: append from code, read a page.

Appends need no engine and no worker. Events are pydantic models, whose type is named as handlers name it, or
:class:`NewEvent`; models are known here by what they can do, not by importing pydantic.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, Self, overload, runtime_checkable

from headrace.domain.errors import BadInput, UsageError
from headrace.domain.event import EVERYTHING, AppendCondition, Appended, Event, EventFilter, NewEvent
from headrace.domain.ids import START, Position
from headrace.domain.json_text import RawJson
from headrace.ports.events import PAGE_BYTES, PAGE_EVENTS, Page
from headrace.store.events import PostgresEvents
from headrace.store.migrate import require_schema
from headrace.store.pool import Database
from headrace.store.queries import DEFAULT_SCHEMA


@runtime_checkable
class Model(Protocol):
    """What makes an object an event: it writes itself as JSON, as pydantic models do."""

    def model_dump_json(self) -> str:
        """Return the event's data as JSON text."""
        ...


AnyEvent = NewEvent | Model


class EventStore:
    """Appends to, and reads from, the event table of one database.

    ``async with EventStore.connect(dsn) as store``; safe to share among tasks.
    """

    def __init__(self, events: PostgresEvents) -> None:
        self._events = events

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, dsn: str, *, schema: str = DEFAULT_SCHEMA, max_size: int = 10, pooler: bool = False
    ) -> AsyncIterator[Self]:
        """Open the store for the time of a block; ``pooler=True`` behind PgBouncer in transaction mode.

        Raises:
            UsageError: the DSN is wrong, the schema is missing (run ``headrace migrate``) or too new.
            Unavailable: the database cannot be reached.

        """
        async with await Database.open(
            dsn, schema=schema, max_size=max_size, application_name="headrace append", pooler=pooler
        ) as database:
            async with database.session() as session:
                await require_schema(session)
            yield cls(await PostgresEvents.open(database))

    @overload
    async def append(
        self,
        stream: str,
        events: Sequence[AnyEvent],
        *,
        expected_version: int | None = None,
        condition: AppendCondition | None = None,
    ) -> Appended: ...

    @overload
    async def append(
        self,
        stream: Mapping[str, Sequence[AnyEvent]],
        *,
        expected_version: Mapping[str, int] | None = None,
        condition: AppendCondition | None = None,
    ) -> Appended: ...

    async def append(
        self,
        stream: str | Mapping[str, Sequence[AnyEvent]],
        events: Sequence[AnyEvent] | None = None,
        *,
        expected_version: int | Mapping[str, int] | None = None,
        condition: AppendCondition | None = None,
    ) -> Appended:
        """Append events to one stream, or to several (``{stream: events}``), all or none.

        ``expected_version`` is the version that the stream must be at, 0 for a new one; for several
        streams a mapping. Positions follow the order given.

        Raises:
            Conflict: a stream is at another version, the condition does not hold, or an event id is
                stored already; nothing was stored.
            BadInput: an event cannot be stored, or is neither a NewEvent nor a model.
            Unavailable: the database went away; whether the events were stored is not known.

        """
        batches, expected = _batches(stream, events, expected_version)
        pairs = [(name, _new_event(event)) for name, batch in batches.items() for event in batch]
        return await self._events.append(pairs, expected, condition)

    async def read(
        self,
        after: Position = START,
        upto: Position | None = None,
        wanted: EventFilter = EVERYTHING,
        limit: int = PAGE_EVENTS,
        max_bytes: int = PAGE_BYTES,
    ) -> Page:
        """Return a page of what is visible now.

        An event with a smaller position may still appear later: only the engine reads without ever
        missing one. For a decision use ``read_for_append``.
        """
        return await self._events.read(after, upto, wanted, limit, max_bytes)

    async def read_for_append(
        self, tags: Sequence[str], types: Sequence[str] | None = None
    ) -> tuple[tuple[Event[Any], ...], AppendCondition]:
        """Return all events with every one of ``tags`` (of ``types``), and the condition that none was added since.

        Waits for open appends of such events, so that none can appear below what was read. Put the
        most specific tag first.

        Raises:
            Unavailable: the database cannot be reached.

        """
        return await self._events.read_for_append(tags, types)

    async def head(self) -> Position:
        """Return the position of the last visible event."""
        return await self._events.head()


def _batches(
    stream: str | Mapping[str, Sequence[AnyEvent]],
    events: Sequence[AnyEvent] | None,
    expected: int | Mapping[str, int] | None,
) -> tuple[Mapping[str, Sequence[AnyEvent]], Mapping[str, int] | None]:
    if isinstance(stream, str):
        if events is None or isinstance(expected, Mapping):
            raise UsageError("append(stream, events, expected_version=number), or append({stream: events, …})")
        return {stream: events}, None if expected is None else {stream: expected}
    if events is not None or isinstance(expected, int):
        raise UsageError("for several streams: append({stream: events, …}, expected_version={stream: number, …})")
    return stream, expected


def _new_event(event: Any) -> NewEvent:
    if isinstance(event, NewEvent):
        if isinstance(event.data, Model):
            return NewEvent(
                event.type,
                RawJson(event.data.model_dump_json()),
                event.tags,
                event.metadata,
                event.event_id,
                event.recorded_at,
            )
        return event
    if isinstance(event, Model):
        # The same name by which `@on(Model)` asks for it.
        name = getattr(event, "__event_type__", type(event).__name__)
        return NewEvent(name, RawJson(event.model_dump_json()))
    raise BadInput(f"{type(event).__name__} is no event: give a pydantic model or NewEvent(type, data)")
