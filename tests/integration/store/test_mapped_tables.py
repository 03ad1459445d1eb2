"""Somebody else's event table, read by configuration: types, missing columns, hostile data, costs, refusals."""

import json
import pickle
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from headrace.domain.errors import MissingRight, UsageError
from headrace.domain.event import EventFilter, NewEvent
from headrace.domain.mapping import TableMapping
from headrace.store.events import PostgresEvents
from headrace.store.mapping import inspect_table
from headrace.store.pool import Database
from headrace.subscribers.calls import decoder_of
from support import databases
from support.pages import blocks
from support.readers import ExactReader
from support.statements import name_of


@asynccontextmanager
async def mapped(
    database: databases.Database, script: str, mapping: TableMapping, **options: Any
) -> AsyncIterator[PostgresEvents]:
    """Yield a reader of a table that the script makes."""
    async with database.connection() as admin:
        await admin.execute(script)
    async with await Database.open(database.dsn, **options) as store:
        yield await PostgresEvents.open(store, mapping)


@pytest.mark.both_versions
async def test_every_column_under_another_name(database: databases.Database) -> None:
    """A table with other names and types reads as ours: varchar, int2, jsonb, arrays, a time without zone."""
    script = """
        create schema "Shop"; create domain kind as varchar(40);
        create table "Shop"."Order Log" (
            "Id" serial primary key, "stream id" uuid, "No" smallint, "kind" kind, "body" jsonb, "meta" json,
            "labels" varchar(9)[], "at" timestamp, "stored" timestamptz, "guid" uuid, "xid" xid8);
        insert into "Shop"."Order Log" values (default, '00000000-0000-0000-0000-000000000001', 3, 'Order placed',
            '{"a": 1}', '{"by": "Ann"}', '{x,y}', '2020-05-17 12:00', '2020-05-17 12:00+02',
            '00000000-0000-0000-0000-000000000002', '77'), (default, '00000000-0000-0000-0000-000000000001', 4, 'Paid',
            'null', null, null, null, null, null, null)"""
    mapping = TableMapping(
        "Order Log", "Shop", "Id", "stream id", "kind", "body", "No", "at", "meta", "labels", "guid", "stored", "xid"
    )
    async with mapped(database, script, mapping) as events:
        first, second = (await events.read()).events
        assert (first.position, first.stream, first.version) == (1, "00000000-0000-0000-0000-000000000001", 3)
        assert (first.type, first.data, first.metadata, first.tags) == (
            "Order placed",
            {"a": 1},
            {"by": "Ann"},
            ("x", "y"),
        )
        assert first.recorded_at == datetime(2020, 5, 17, 12, tzinfo=UTC)
        assert first.appended_at == datetime(2020, 5, 17, 10, tzinfo=UTC)
        assert (first.event_id, first.commit_id) == (UUID(int=2), 77)
        assert (second.data, second.tags, second.event_id, second.recorded_at) == (None, (), None, None)
        assert [e.position for e in (await events.read(wanted=EventFilter(types=("Paid",)))).events] == [2]
        assert [e.position for e in (await events.read(wanted=EventFilter(tags=("x",)))).events] == [1]
        assert events.table.notes == ()


async def test_missing_columns(database: databases.Database) -> None:
    """Only position, stream, type and data must be there; ages come from the time column, and status says so."""
    script = """create table log (id bigint generated always as identity primary key, s text, t text, d text, at date);
                insert into log (s, t, d, at) values ('a', 'T', '1', '2020-01-02'), (null, null, null, null)"""
    mapping = TableMapping("log", position="id", stream="s", type="t", data="d", time="at")
    async with mapped(database, script, mapping) as events:
        first, second = (await events.read()).events
        assert (first.version, first.event_id, first.tags, first.metadata) == (0, None, (), {})
        assert first.appended_at == first.recorded_at == datetime(2020, 1, 2, tzinfo=UTC)
        assert (second.stream, second.type, second.data) == ("", "", None)
        assert first.execution_id != second.execution_id
        assert events.table.notes == ("public.log has no appended_at: lag and ages are told from 'at'",)
        with pytest.raises(UsageError, match="belongs to somebody else"):
            await events.append([("s", NewEvent("T", 1))])


@pytest.mark.both_versions
@pytest.mark.parametrize("type", ["json", "text", "bytea"])
async def test_hostile_data_does_not_break_its_page(database: databases.Database, type: str) -> None:
    """What our table would refuse may lie in somebody else's: the page is read, other events are whole, and only who
    decodes the bad one sees that it is bad.
    """
    texts = [r'"\u0000"', r'"\ud800"', '{"a": 1}', "[" * 3000 + "]" * 3000]
    bad = [] if type == "json" else ["{", ""]
    mapping = TableMapping("log", position="id", stream="s", type="t", data="d")
    script = f"create table log (id bigint generated always as identity primary key, s text, t text, d {type})"
    async with mapped(database, script, mapping) as events, database.connection() as admin:
        for text in texts + bad:
            value = text.encode() if type == "bytea" else text
            await admin.execute("insert into log (s, t, d) values ('s', 'T', $1)", value)
        if type == "bytea":
            await admin.execute(r"insert into log (s, t, d) values ('s', 'T', '\xff00fe')")
        read = (await events.read()).events
        assert [event.raw_data for event in read[: len(texts + bad)]] == texts + bad
        assert read[2].data == {"a": 1}
        for event in read[len(texts) :]:
            with pytest.raises(ValueError, match=r"Expecting|Extra"):
                _ = event.data
        if type == "bytea":
            assert read[-1].raw_data == r"\xff00fe"


def _sealed(data: Any) -> bytes:
    return zlib.compress(pickle.dumps(data))


def _opened(stored: bytes) -> Any:
    return pickle.loads(zlib.decompress(stored))  # noqa: S301 - the test has written it


@pytest.mark.both_versions
async def test_bytes_come_to_the_decoder_as_they_lie(database: databases.Database) -> None:
    """Bytes that are no text reach the mapping's own function whole, of any length, whatever the server's form of bytea
    is; NULL is None and not decoded, and what the function raises belongs to its event alone.
    """
    script = f"""create table log (id bigint generated always as identity primary key, s text, t text, d bytea);
                 alter database {database.name} set bytea_output = 'escape'"""
    mapping = TableMapping("log", position="id", stream="s", type="t", data="d", decode=_opened)
    values: list[Any] = [{"at": datetime(2026, 1, 2, tzinfo=UTC), "bytes": bytes(range(256)) * 300}, None, "", 0]
    async with mapped(database, script, mapping) as events, database.connection() as admin:
        for stored in [*map(_sealed, values), b"", b"no such thing", None]:
            await admin.execute("insert into log (s, t, d) values ('s', 'T', $1)", stored)
        read = (await events.read()).events
        assert [event.data for event in read[: len(values)]] == values
        for event in read[len(values) : -1]:
            with pytest.raises(zlib.error):
                _ = event.data
        assert read[-1].data is None


@pytest.mark.parametrize("type", ["json", "jsonb", "text"])
async def test_text_comes_to_the_decoder_as_text(database: databases.Database, type: str) -> None:
    """A json, jsonb or text column hands its text over, once per look; NULL is None."""
    asked: list[str] = []

    def decode(text: str) -> Any:
        asked.append(text)
        return json.loads(text, parse_float=Decimal)

    script = f"""create table log (id bigint generated always as identity primary key, s text, t text, d {type});
                 insert into log (s, t, d) values ('s', 'T', '{{"a": 0.10}}'), ('s', 'T', null)"""
    mapping = TableMapping("log", position="id", stream="s", type="t", data="d", decode=decode)
    async with mapped(database, script, mapping) as events:
        first, second = (await events.read()).events
        assert asked == []
        assert first.data == first.data == {"a": Decimal("0.10")}
        assert second.data is None
        assert asked == ['{"a": 0.10}']


async def test_what_is_decoded_is_validated_by_the_model(database: databases.Database) -> None:
    """A handler's model gets what the mapping's function made, without a detour through JSON."""

    class Paid(BaseModel):
        at: datetime
        cents: int

    script = "create table log (id bigint generated always as identity primary key, s text, t text, d bytea)"
    mapping = TableMapping("log", position="id", stream="s", type="t", data="d", decode=_opened)
    at = datetime(2026, 1, 2, tzinfo=UTC)
    async with mapped(database, script, mapping) as events, database.connection() as admin:
        for data in ({"at": at, "cents": "12"}, {"at": at}):
            await admin.execute("insert into log (s, t, d) values ('s', 'T', $1)", _sealed(data))
        good, bad = [event.seen_as(decoder_of(Paid)) for event in (await events.read()).events]
        assert good.data == Paid(at=at, cents=12)
        with pytest.raises(ValueError, match="cents"):
            _ = bad.data


async def _async_decode(stored: bytes) -> Any:
    return stored


@pytest.mark.parametrize(("decode", "words"), [(_async_decode, "is async"), ("pickle", "must be a function")])
def test_a_decoder_that_cannot_be_one_is_refused(decode: Any, words: str) -> None:
    """What cannot make data is refused where the mapping is made."""
    with pytest.raises(UsageError, match=words):
        TableMapping("log", decode=decode)


@pytest.mark.parametrize(
    ("script", "changes", "words"),
    [
        ("", {"table": "nothing"}, "not in this database"),
        ("create view v as select * from log", {"table": "v"}, "view or foreign table"),
        ("", {"stream": "no"}, r"no column 'no' \(mapped as stream\); it has d, id, s, t"),
        ("", {"data": "id"}, "is bigint; as data it must be bytea or character varying or json"),
        ("", {"position": "s"}, "is text; as position it must be bigint"),
        ("alter table log drop constraint log_pkey", {}, "no unique index on 'id'"),
        ("alter table log alter id drop identity", {}, "owns no sequence: name the one"),
        ("", {"sequence": "public.no"}, "is no sequence of this database"),
        ("create sequence back increment -1", {"sequence": "back"}, "must rise"),
        ("create sequence round cycle", {"sequence": "round"}, "never start again"),
    ],
)
async def test_wrong_mappings_are_refused(
    database: databases.Database, script: str, changes: dict[str, Any], words: str
) -> None:
    """Whatever is missing or unfit is said at the start, with its name."""
    columns: dict[str, Any] = {"table": "log", "position": "id", "stream": "s", "type": "t", "data": "d"} | changes
    async with database.connection() as admin:
        await admin.execute(
            "create table log (id bigint generated always as identity primary key, s text, t text, d text);" + script
        )
    async with await Database.open(database.dsn) as store, store.session() as session:
        with pytest.raises(UsageError, match=words):
            await inspect_table(session, TableMapping(**columns))


async def test_missing_rights_are_named(database: databases.Database) -> None:
    """A role that may not read the table, or its sequence, is told which."""
    role = f"reader_{database.name}"
    async with database.connection() as admin:
        await admin.execute(
            f"""create table log (id bigint generated always as identity primary key, s text, t text, d text);
                create role "{role}" login"""
        )
        mapping = TableMapping("log", position="id", stream="s", type="t", data="d")
        try:
            async with await Database.open(database.dsn_as(role)) as store, store.session() as session:
                with pytest.raises(MissingRight, match=r"may not read public\.log"):
                    await inspect_table(session, mapping)
                await admin.execute(f'grant select on log to "{role}"')
                with pytest.raises(MissingRight, match=r"sequence public\.log_id_seq"):
                    await inspect_table(session, mapping)
                await admin.execute(f'grant select on sequence log_id_seq to "{role}"')
                await inspect_table(session, mapping)
        finally:
            await admin.execute(f'drop owned by "{role}"; drop role "{role}"')


async def test_the_layout_of_message_db(database: databases.Database) -> None:
    """The mapping that the guide gives for this layout reads it: versions from 0, times without a zone, nulls."""
    page = Path(__file__).parents[3] / "docs/how-to/existing-event-table.md"
    (code,) = [each.body for each in blocks(page) if "MESSAGES =" in each.body]
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - the page is ours
    script = """
        create schema message_store;
        create table message_store.messages (
            global_position bigserial not null primary key, position bigint not null, id uuid default gen_random_uuid(),
            time timestamp default '2026-01-02', stream_name text not null, type text not null, data jsonb,
            metadata jsonb);
        insert into message_store.messages (position, stream_name, type, data, metadata)
        values (0, 'order-1', 'Placed', '{"cents": 3}', '{"by": "Ann"}'), (1, 'order-1', 'Closed', null, null)"""
    async with mapped(database, script, names["MESSAGES"]) as events:
        first, second = (await events.read()).events
        assert (first.position, first.stream, first.version, first.data) == (1, "order-1", 0, {"cents": 3})
        assert first.recorded_at == first.appended_at == datetime(2026, 1, 2, tzinfo=UTC)
        assert (first.metadata, second.metadata, second.data, second.version) == ({"by": "Ann"}, {}, None, 1)
        assert first.event_id != second.event_id


async def test_partitioned_table(database: databases.Database) -> None:
    """Direct inserts into a partition take no lock on the parent: the sequence alone shows the open append."""
    script = """create table log (id bigint generated always as identity, at timestamptz default now(), stream text,
                                  type text default '', data jsonb default '1', primary key (id, at))
                partition by range (at);
                create table log_all partition of log default;"""
    async with mapped(database, script, TableMapping("log", position="id", time="at"), max_size=3) as events:
        reader = ExactReader.of(events._database, events.table)
        await reader.read_on()
        async with database.connection() as appender, database.connection() as other:
            await appender.execute("begin")
            insert = "insert into log_all (id, stream) values (nextval('log_id_seq'), $1)"
            await appender.execute(insert, "open")
            await other.execute(insert, "other")
            assert (await reader.read_on()).line == 0
            await appender.execute("commit")
            await reader.read_on()
            assert [stream for _, stream, _ in reader.seen] == ["open", "other"]


async def test_positions_with_gaps_cost_nothing(database: databases.Database, scale: float) -> None:
    """L18: a sequence that steps by 3 and is used elsewhere too makes hundreds of thousands of holes: there is one
    statement per page, and the last page reads no more buffers than the first.
    """
    count = max(10_000, int(200_000 * scale))
    script = f"""create table log (id bigint generated always as identity (increment 3) primary key, stream text,
                                   type text default 'T', data jsonb default '1');
                 insert into log (stream) select 's' || n % 50 from generate_series(1, {count}) n
                  where nextval('log_id_seq') > 0 and nextval('log_id_seq') > 0;
                 analyze log"""
    heard: list[str] = []
    async with mapped(
        database,
        script,
        TableMapping("log", position="id"),
        on_statement=lambda text: heard.append(name_of(text)),
        max_size=2,
    ) as events:
        reader = ExactReader.of(events._database, events.table)
        heard.clear()
        horizon = await reader.read_on(limit=1000)
        assert (len(reader.seen), horizon.is_held) == (count, False)
        assert reader.position >= 8 * count
        assert heard.count("read_events") == -(-count // 1000)
        assert len(heard) - heard.count("read_events") <= 2
        async with events._database.session() as session:
            first, last = [await _buffers(events, session, after) for after in (0, reader.position - 9000)]
        assert last < first * 2


async def _buffers(events: PostgresEvents, session: Any, after: int) -> int:
    query = "explain (analyze, buffers, format json) " + events._read_query(session, EventFilter())
    plan = await session.fetchval(query, after, 2**62, None, None, None, 1001, 10**9)
    return int(json.loads(plan)[0]["Plan"]["Shared Hit Blocks"]) + 1
