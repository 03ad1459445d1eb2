"""Event tables as the reading SQL sees them: the fragment ``{{events}}``, checked at start.

Whatever the table, the fragment has the columns position, stream, version, type, data, metadata,
tags, event_id, recorded_at, appended_at and commit_id; data and metadata are jsonb in our table and
text in a mapped one, so queries write ``data::text``. Position is never cast: it must stay indexable.
"""

from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from headrace.domain.errors import MissingRight, SchemaMissing, UsageError
from headrace.domain.event import SourceDecoder
from headrace.domain.mapping import TableMapping
from headrace.store.pool import Session
from headrace.store.queries import Fragment, Queries, quoted

_WHOLE = {"smallint", "integer", "bigint"}
_TEXT = {"text", "character varying"}
_JSON = {"jsonb", "json", "text", "character varying"}

_NO_BYTES = "-"
_NO_TEXT = "null"


@dataclass(frozen=True, slots=True)
class EventTable:
    """A checked mapping. ``events`` is the fragment for ``{{events}}``, ``data_size`` the bytes of ``e.data``.

    ``type_index``: an index on (type, position) serves reading of rare types. ``notes`` are for status.
    ``decode`` makes data of ``e.data``, where the mapping has a decoder.
    """

    mapping: TableMapping
    events: Fragment
    data_size: Fragment
    relation: int
    sequence: int
    sequence_name: str
    cache: int
    step: int
    type_index: bool
    notes: tuple[str, ...] = ()
    decode: SourceDecoder | None = None

    @property
    def source(self) -> str | None:
        """The name under which positions of this table are stored; None for our own."""
        return None if self.mapping.own else self.mapping.name


async def inspect_table(session: Session, mapping: TableMapping | None = None) -> EventTable:
    """Check a mapping (None: our own table) against the database.

    Raises:
        UsageError: the table, a column, the sequence or an index is missing or of the wrong type.
        SchemaMissing: our own table is not there.
        MissingRight: the role may not read the table or its sequence.

    """
    if mapping is None:
        mapping = TableMapping.ours(session.queries.schema)
    relation, kind = await _relation(session, mapping)
    rows = await session.fetch(session.queries.mapping_columns, relation)
    types = {row["name"]: row["type"] for row in rows}
    _check_columns(mapping, types)
    nullable = frozenset(row["name"] for row in rows if not row["required"])
    type_index = await _check_indexes(session, mapping, relation, kind)
    name, sequence = await _sequence(session, mapping)
    notes = []
    if not mapping.own and mapping.appended_at is None:
        notes.append(
            f"{mapping.name} has no appended_at: lag and ages are told from {mapping.time!r}"
            if mapping.time
            else f"{mapping.name} has no time column: lag and ages are not known"
        )
    return EventTable(
        mapping=mapping,
        events=events_fragment(mapping, types, nullable, session.queries),
        data_size=session.queries.fragment("data_size"),
        relation=relation,
        sequence=sequence["sequence"],
        sequence_name=name,
        cache=sequence["cache"],
        step=sequence["step"],
        type_index=type_index,
        notes=tuple(notes),
        decode=source_decoder(mapping, types[mapping.data]),
    )


def source_decoder(mapping: TableMapping, data_type: str) -> SourceDecoder | None:
    """Return what makes data of the text that ``{{events}}`` has for it; None when that is JSON."""
    if mapping.decode is None:
        return None
    decode = cast("Callable[[bytes | str], Any]", mapping.decode)
    if data_type == "bytea":
        return lambda text: None if text == _NO_BYTES else decode(b64decode(text))
    return lambda text: None if text == _NO_TEXT else decode(text)


def events_fragment(
    mapping: TableMapping, types: Mapping[str, str], nullable: frozenset[str], queries: Queries
) -> Fragment:
    """Return the relation that stands for ``{{events}}``; ``types`` are the table's columns by name.

    A stream that may be null reads as ''. A type that may be null stays, so that an index on it serves; it matches no
    wanted type, and whoever makes an event of the row reads it as ''.
    """
    if mapping.own:
        return queries.fragment("own_table")

    def column(name: str | None, as_is: set[str], otherwise: str, missing: str) -> Fragment:
        if name is None:
            return queries.fragment(missing)
        form = "mapped_as_is" if types[name] in as_is else otherwise
        return queries.fragment(form, column=quoted(name))

    time = column(mapping.time, {"timestamp with time zone"}, "mapped_local_time", "mapped_no_time")
    data_form = "mapped_json"
    if types[mapping.data] == "bytea":
        data_form = "mapped_bytes" if mapping.decode is None else "mapped_encoded"
    appended = mapping.appended_at or mapping.time
    return queries.fragment(
        "mapped_events",
        position=quoted(mapping.position),
        stream=column(mapping.stream, set() if mapping.stream in nullable else _TEXT, "mapped_text", ""),
        version=column(mapping.version, {"integer"}, "mapped_int", "mapped_no_version"),
        type=column(mapping.type, _TEXT, "mapped_text", ""),
        data=queries.fragment(data_form, column=quoted(mapping.data)),
        metadata=column(mapping.metadata, set(), "mapped_json", "mapped_no_json"),
        tags=column(mapping.tags, set(), "mapped_tags", "mapped_no_tags"),
        event_id=column(mapping.event_id, {"uuid"}, "mapped_as_is", "mapped_no_id"),
        recorded_at=time,
        appended_at=column(appended, {"timestamp with time zone"}, "mapped_local_time", "mapped_no_time"),
        commit_id=column(mapping.commit_id, {"xid8"}, "mapped_as_is", "mapped_no_commit"),
        relation=Fragment(f"{quoted(mapping.schema)}.{quoted(mapping.table)}"),
    )


async def _relation(session: Session, mapping: TableMapping) -> tuple[int, str]:
    row = await session.fetchrow(session.queries.mapping_relation, mapping.schema, mapping.table)
    if row is None:
        if mapping.own:
            raise SchemaMissing(f"the table {mapping.name} is not there: run `headrace migrate` on this database")
        raise UsageError(f"the mapped table {mapping.name} is not in this database: correct schema and table")
    if row["kind"] not in {"r", "p"}:
        raise UsageError(f"{mapping.name} is a view or foreign table: map the table that appends write to")
    if not row["readable"]:
        raise MissingRight(f"this role may not read {mapping.name}: grant it SELECT")
    return row["relation"], row["kind"]


def _check_columns(mapping: TableMapping, types: Mapping[str, str]) -> None:
    allowed = {
        "position": _WHOLE,
        "stream": None,
        "type": None,
        "data": _JSON | {"bytea"},
        "version": _WHOLE,
        "time": {"timestamp with time zone", "timestamp without time zone", "date"},
        "appended_at": {"timestamp with time zone", "timestamp without time zone", "date"},
        "metadata": _JSON,
        "tags": {"text[]", "character varying[]"},
        "event_id": {"uuid"},
        "commit_id": {"xid8"},
    }
    for role, wanted in allowed.items():
        name = getattr(mapping, role)
        if name is None:
            continue
        if name not in types:
            there = ", ".join(sorted(types))
            raise UsageError(f"{mapping.name} has no column {name!r} (mapped as {role}); it has {there}")
        if wanted is not None and types[name] not in wanted:
            fit = " or ".join(sorted(wanted))
            raise UsageError(f"column {name!r} of {mapping.name} is {types[name]}; as {role} it must be {fit}")


async def _check_indexes(session: Session, mapping: TableMapping, relation: int, kind: str) -> bool:
    rows = await session.fetch(session.queries.mapping_indexes, relation)
    unique = any(row["is_unique"] and row["columns"] == [mapping.position] for row in rows)
    # The unique index of a partitioned table holds its partition key as well.
    leading = any(row["columns"][:1] == [mapping.position] for row in rows)
    if not unique and not (kind == "p" and leading):
        raise UsageError(
            f"{mapping.name} has no unique index on {mapping.position!r}: positions must be unique, and every read "
            f"starts at one; create one, or map another column as position"
        )
    return any(row["columns"] == [mapping.type, mapping.position] for row in rows)


async def _sequence(session: Session, mapping: TableMapping) -> tuple[str, Mapping[str, int]]:
    queries = session.queries
    relation = f"{quoted(mapping.schema)}.{quoted(mapping.table)}"
    name = mapping.sequence or await session.fetchval(queries.mapping_sequence_owned, relation, mapping.position)
    if name is None:
        raise UsageError(
            f"column {mapping.position!r} of {mapping.name} owns no sequence: name the one its positions come from "
            "(sequence=, with its schema)"
        )
    row = await session.fetchrow(queries.mapping_sequence, name)
    if row is None:
        raise UsageError(f"{name!r} is no sequence of this database: correct sequence= (schema.name)")
    if row["step"] < 1 or row["cycles"]:
        raise UsageError(f"the sequence {name} must rise and never start again: positions are the order of events")
    if not row["readable"]:
        raise MissingRight(f"this role may not look at the sequence {name}: grant it SELECT on the sequence")
    return name, {"sequence": row["sequence"], "cache": row["cache"], "step": row["step"]}


async def save_source(session: Session, table: EventTable) -> None:
    """Let statistics and commands look at a mapped event table; nothing happens for our own."""
    if table.source is None:
        return
    mapping = table.mapping
    relation = f"{quoted(mapping.schema)}.{quoted(mapping.table)}"
    await session.execute(
        session.queries.source_save,
        table.source,
        relation,
        table.sequence_name,
        mapping.exact,
        str(table.events),
        list(table.notes),
    )
