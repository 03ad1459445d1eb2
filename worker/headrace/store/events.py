"""The event store: append to our table, read any mapped one.

An append is one round trip to a function that has no exception block, so its good path pays for none;
what goes wrong is told apart here, by constraint name and SQLSTATE. Nothing is added to an append so
that it can be read.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Self

import asyncpg

from headrace.domain.errors import BadInput, Conflict, TransactionAborted, UnstorableEvent, UsageError
from headrace.domain.event import (
    EVERYTHING,
    AppendCondition,
    Appended,
    Event,
    EventFilter,
    NewEvent,
    SourceDecoder,
)
from headrace.domain.ids import START, Position
from headrace.domain.json_text import checked_text
from headrace.domain.mapping import TableMapping
from headrace.ports.events import PAGE_BYTES, PAGE_EVENTS, Page, check_append, check_import
from headrace.store.append_arrays import EventArrays, event_arrays
from headrace.store.mapping import EventTable, inspect_table
from headrace.store.pool import Database, Session
from headrace.store.queries import Fragment

APPEND_TRIES = 30
FEW_TYPES = 16
"""Up to so many wanted types are read through the index on (type, position)."""
LAST_POSITION = Position(2**63 - 1)

_STREAM_VERSION = "events_stream_version"
_EVENT_ID = "events_event_id"
_MAX_LIMIT = 2**31


def event_of(row: asyncpg.Record, source: SourceDecoder | None = None) -> Event[Any]:
    """Return the event of a row that has the columns of ``{{events}}``, data and metadata as text.

    ``source`` is the ``decode`` of the table.
    """
    return Event(
        position=row["position"],
        stream=row["stream"],
        version=row["version"],
        type=row["type"] or "",
        raw_data=row["data"],
        raw_metadata=row["metadata"],
        tags=row["tags"],
        event_id=row["event_id"],
        recorded_at=row["recorded_at"],
        appended_at=row["appended_at"],
        commit_id=row["commit_id"],
        source=source,
    )


class PostgresEvents:
    """Reads one event table, and appends to it when it is ours (ports ``EventReader``, ``EventAppender``)."""

    def __init__(self, database: Database, table: EventTable) -> None:
        self._database = database
        self.table = table

    @classmethod
    async def open(cls, database: Database, mapping: TableMapping | None = None) -> Self:
        """Check the table (None: our own) and return its reader; raises what ``inspect_table`` does."""
        async with database.session() as session:
            return cls(database, await inspect_table(session, mapping))

    async def head(self) -> Position:
        """Return the position of the last visible event, START when there is none."""
        async with self._database.session() as session:
            position = await session.fetchval(session.queries.render("head_position", events=self.table.events))
            return Position(position)

    async def read(
        self,
        after: Position = START,
        upto: Position | None = None,
        wanted: EventFilter = EVERYTHING,
        limit: int = PAGE_EVENTS,
        max_bytes: int = PAGE_BYTES,
    ) -> Page:
        """Return the next page; see the port."""
        if not 0 < limit < _MAX_LIMIT:
            raise UsageError(f"limit must be from 1 to {_MAX_LIMIT - 1}, not {limit}")
        async with self._database.session() as session:
            return await self._page(session, after, upto, wanted, limit, max_bytes)

    async def read_for_append(
        self, tags: Sequence[str], types: Sequence[str] | None = None
    ) -> tuple[tuple[Event[Any], ...], AppendCondition]:
        """Return all events with every one of ``tags`` (of ``types``), and the condition that none was added since.

        The lock of that condition is taken first: open appends of such events have ended then, and
        later ones draw higher positions, so nothing can appear below what is read.
        """
        arguments = _condition_arguments(AppendCondition(tags, START, types))
        wanted = EventFilter(None if types is None else tuple(types), None, tuple(tags))
        events: list[Event[Any]] = []
        async with self._database.session() as session, session.transaction():
            await session.execute(self._own("lock_condition"), arguments[0])
            after, more = START, True
            while more:
                page = await self._page(session, after, None, wanted, PAGE_EVENTS, PAGE_BYTES)
                events.extend(page.events)
                after, more = page.last, page.more
        return tuple(events), AppendCondition(tags, after, types)

    async def _page(
        self, session: Session, after: Position, upto: Position | None, wanted: EventFilter, limit: int, max_bytes: int
    ) -> Page:
        rows = await session.fetch(
            self._read_query(session, wanted),
            after,
            LAST_POSITION if upto is None else upto,
            _array(wanted.types),
            _array(wanted.streams),
            _array(wanted.tags or None),
            limit + 1,
            max_bytes,
        )
        events = tuple(event_of(row, self.table.decode) for row in rows if row["position"] is not None)
        more = rows[0]["found"] > len(events)
        last = events[-1].position if more else Position(rows[0]["last_row"] or after)
        return Page(events, last, more)

    async def append(
        self,
        events: Sequence[tuple[str, NewEvent]],
        expected: Mapping[str, int] | None = None,
        condition: AppendCondition | None = None,
    ) -> Appended:
        """Append in one round trip; see the port."""
        check_append(events)
        arrays = event_arrays(events)
        query = self._own("append_events")
        arguments = (*arrays, *_expected_arrays(expected), *_condition_arguments(condition))
        for _ in range(APPEND_TRIES):
            async with self._database.session() as session:
                try:
                    row = await _one_row(session, query, arguments)
                except (asyncpg.PostgresError, TransactionAborted) as error:
                    if _lost_a_race(error):
                        # It waited for the winner to commit, so a new try sees it: no pause is needed. A stream
                        # with an expected version now gets the refusal that names both versions.
                        continue
                    await _refuse(session, error, arrays)
                return Appended(
                    Position(row["first"]),
                    Position(row["last"]),
                    dict(zip(row["streams"], row["versions"], strict=True)),
                )
        raise Conflict(
            f"others kept extending the same streams: gave up after {APPEND_TRIES} tries, nothing was stored"
        )

    async def import_chunk(self, events: Sequence[tuple[str, NewEvent]]) -> int:
        """Append what is not stored yet; see the port."""
        check_import(events)
        if not events:
            return 0
        arrays = event_arrays(events)
        query = self._own("import_events")
        for _ in range(APPEND_TRIES):
            async with self._database.session() as session:
                try:
                    row = await _one_row(session, query, arrays)
                except (asyncpg.PostgresError, TransactionAborted) as error:
                    if _lost_a_race(error, _STREAM_VERSION, _EVENT_ID):
                        continue
                    await _refuse(session, error, arrays)
                return int(row[0])
        raise Conflict(f"others kept importing the same events: gave up after {APPEND_TRIES} tries, nothing was stored")

    def _own(self, name: str) -> str:
        if not self.table.mapping.own:
            raise UsageError(f"{self.table.mapping.name} belongs to somebody else: only our own table takes appends")
        return self._database.queries.get(name)

    def _read_query(self, session: Session, wanted: EventFilter) -> str:
        queries, events = session.queries, self.table.events
        types = queries.fragment("wanted_any_types")
        if wanted.types is not None:
            # Only alone: each part stops at the limit, so a further condition would leave a page short.
            alone = wanted.streams is None and wanted.tags is None
            if alone and self.table.type_index and len(wanted.types) <= FEW_TYPES:
                types = queries.fragment("wanted_few_types", events=events)
            else:
                types = queries.fragment("wanted_types")
        fragments: dict[str, Fragment] = {
            "types": types,
            "streams": queries.fragment("wanted_any_streams" if wanted.streams is None else "wanted_streams"),
            "tags": queries.fragment("wanted_tags" if wanted.tags else "wanted_any_tags"),
        }
        return queries.render(
            "read_events",
            events=events,
            data_size=self.table.data_size,
            wanted=queries.fragment("wanted_events", **fragments),
        )


def _array(values: Sequence[str] | None) -> list[str] | None:
    return None if values is None else list(values)


def _expected_arrays(expected: Mapping[str, int] | None) -> tuple[list[str] | None, list[int] | None]:
    if not expected:
        return None, None
    for stream, version in expected.items():
        checked_text(stream, "the stream")
        if version < 0:
            raise UsageError(f"expected_version of stream {stream!r} must be 0 (new) or the version it is at")
    return list(expected), list(expected.values())


def _condition_arguments(condition: AppendCondition | None) -> tuple[list[str] | None, list[str] | None, int | None]:
    if condition is None:
        return None, None, None
    if isinstance(condition.tags, str) or not condition.tags:
        raise UsageError("an append condition needs a list of at least one tag")
    tags = [checked_text(tag, "a tag of the condition") for tag in condition.tags]
    types = None if condition.types is None else [checked_text(t, "a type of the condition") for t in condition.types]
    return tags, types, condition.after


async def _one_row(session: Session, query: str, arguments: Sequence[Any]) -> asyncpg.Record:
    row = await session.fetchrow(query, *arguments)
    if row is None:
        raise RuntimeError("the append function returned no row")
    return row


def _lost_a_race(error: Exception, *constraints: str) -> bool:
    """Tell whether a new try may succeed: others were first, or the two waited for each other."""
    if isinstance(error, asyncpg.UniqueViolationError):
        return error.constraint_name in (constraints or (_STREAM_VERSION,))
    return isinstance(error, TransactionAborted)


async def _refuse(session: Session, error: Exception, arrays: EventArrays) -> NoReturn:
    """Raise what a failed append means."""
    if isinstance(error, asyncpg.UniqueViolationError) and error.constraint_name == _EVENT_ID:
        raise Conflict(f"an event of this id is stored already ({error.detail}); nothing was stored") from error
    if isinstance(error, asyncpg.DataError | asyncpg.ProgramLimitExceededError | asyncpg.StatementTooComplexError):
        await _name_the_culprit(session, arrays)
        raise BadInput(f"the events cannot be stored: {error}") from error
    raise error


async def _name_the_culprit(session: Session, arrays: EventArrays) -> None:
    """Find the event whose JSON the server refuses, one by one: this is no path that needs to be fast."""
    for what, texts in (("data", arrays[2]), ("metadata", arrays[3] or ())):
        for index, text in enumerate(texts):
            if text is None:
                continue
            try:
                await session.fetchval(session.queries.json_is_storable, text)
            except asyncpg.PostgresError as error:
                problem = f"{what} cannot be stored: {error}"
                raise UnstorableEvent(index, arrays[0][index], arrays[1][index], problem) from error
