"""Appending: order, versions, conditions, hostile data, imports; one round trip, all or nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel

from headrace.domain.errors import BadInput, Conflict, SchemaMissing, UnstorableEvent, UsageError
from headrace.domain.event import AppendCondition, EventFilter, NewEvent
from headrace.domain.ids import Position
from headrace.domain.json_text import RawJson
from headrace.runtime.event_store import EventStore
from headrace.store.events import PostgresEvents
from headrace.store.pool import Database
from support import databases
from support.waiting import until


class OrderPlaced(BaseModel):
    """An event as applications write it."""

    customer: str
    total_cents: int


def new(type: str = "Happened", data: Any = None, **fields: Any) -> NewEvent:
    """Return an event to append."""
    return NewEvent(type, {} if data is None else data, **fields)


@asynccontextmanager
async def opened(database: databases.Database, **options: Any) -> AsyncIterator[PostgresEvents]:
    """Yield the event store of a test's database."""
    async with await Database.open(database.dsn, **options) as store:
        yield await PostgresEvents.open(store)


# ----------------------------------------------------------------------------------------------------- order, versions


@pytest.mark.both_versions
async def test_positions_follow_the_order_given(database: databases.Database) -> None:
    """Positions rise in the order of the events, across streams, whatever order the streams' names sort in."""
    async with opened(database) as events:
        given = [(f"s{n % 7}", new(data=n)) for n in range(1000, 0, -1)]
        appended = await events.append(given)
        page = await events.read()
        assert [event.data for event in page.events] == list(range(1000, 0, -1))
        assert (appended.first, appended.last) == (page.events[0].position, page.events[-1].position)
        assert appended.versions == {f"s{n}": sum(m % 7 == n for m in range(1000, 0, -1)) for n in range(7)}


async def test_versions_go_on_where_each_stream_is(database: databases.Database) -> None:
    """Each stream counts 1, 2, 3, … by itself, over appends and within one."""
    async with opened(database) as events:
        await events.append([("a", new()), ("b", new()), ("a", new())])
        await events.append([("b", new()), ("c", new()), ("b", new())])
        read = (await events.read()).events
        assert [(e.stream, e.version) for e in read] == [
            ("a", 1), ("b", 1), ("a", 2), ("b", 2), ("c", 1), ("b", 3),
        ]  # fmt: skip


async def test_expected_version(database: databases.Database) -> None:
    """An append that expects another version stores nothing and says what it expected and found; 0 means new."""
    async with opened(database) as events:
        await events.append([("order-17", new())], {"order-17": 0})
        with pytest.raises(Conflict, match='"order-17" is at version 1, expected was 0'):
            await events.append([("other", new()), ("order-17", new())], {"order-17": 0})
        with pytest.raises(Conflict, match='"missing" is at version 0, expected was 4'):
            await events.append([("missing", new())], {"missing": 4})
        assert (await events.append([("order-17", new())], {"order-17": 1})).versions == {"order-17": 2}
        assert len((await events.read()).events) == 2


async def test_one_of_many_wins_an_expected_version(database: databases.Database) -> None:
    """Of twenty appends that expect the same version at the same moment one succeeds; the others hear Conflict."""
    async with opened(database, max_size=20) as events:
        results = await asyncio.gather(
            *(events.append([("s", new(data=n))], {"s": 0}) for n in range(20)), return_exceptions=True
        )
        assert sum(isinstance(result, Conflict) for result in results) == 19
        assert len((await events.read()).events) == 1


async def test_appends_without_expectation_all_succeed(database: databases.Database) -> None:
    """Appends that expect nothing never conflict: each takes the next versions, whatever others do meanwhile."""
    async with opened(database, max_size=16) as events:
        await asyncio.gather(*(events.append([("hot", new()), ("hot", new())]) for _ in range(100)))
        read = (await events.read()).events
        assert [event.version for event in read] == list(range(1, 201))


async def test_streams_in_opposite_order_do_not_fail(database: databases.Database) -> None:
    """Appends to the same streams in opposite order may wait for each other: they are tried again, not failed."""
    async with opened(database, max_size=8) as events:
        there, back = [("a", new()), ("b", new())], [("b", new()), ("a", new())]
        await asyncio.gather(*(events.append(there if n % 2 else back) for n in range(60)))
        assert len((await events.read()).events) == 120


async def test_event_id_is_stored_once(database: databases.Database) -> None:
    """A second event of one id is refused, so that a client may retry an append whose answer it lost."""
    async with opened(database) as events:
        event_id = uuid4()
        await events.append([("a", new(event_id=event_id))])
        with pytest.raises(Conflict, match=str(event_id)):
            await events.append([("b", new()), ("b", new(event_id=event_id))])
        assert len((await events.read()).events) == 1


async def test_one_append_is_one_statement(database: databases.Database) -> None:
    """Streams, versions, conditions and rows go in one round trip, however many there are."""
    statements: list[str] = []
    async with opened(database, on_statement=statements.append) as events:
        statements.clear()
        await events.append(
            [(f"s{n}", new(tags=["course:1"])) for n in range(50)],
            {f"s{n}": 0 for n in range(50)},
            AppendCondition(["course:1"]),
        )
        assert len(statements) == 1


# -------------------------------------------------------------------------------------------------- applications' calls


async def test_append_in_every_documented_shape(database: databases.Database) -> None:
    """Models, raw events with everything, and several streams at once go through EventStore as the docs write it."""
    event_id, at = uuid4(), datetime(2020, 5, 17, 12, tzinfo=UTC)
    async with EventStore.connect(database.dsn) as store:
        await store.append("order-17", [OrderPlaced(customer="Ann", total_cents=300)], expected_version=0)
        await store.append(
            "order-17",
            [NewEvent("Order placed", {"total": 3}, ["order:17"], {"by": "Ann"}, event_id, at)],
            expected_version=1,
        )
        await store.append(
            {"course-1": [NewEvent("Booked", OrderPlaced(customer="Eva", total_cents=1), ["course:1"])], "student-9": [
                NewEvent("Booked", {}, ["course:1"])]},
            expected_version={"student-9": 0},
            condition=AppendCondition(tags=["course:1"], after=Position(2)),
        )  # fmt: skip
        model, raw, *_ = (await store.read()).events
        assert (model.type, model.data) == ("OrderPlaced", {"customer": "Ann", "total_cents": 300})
        assert (raw.event_id, raw.recorded_at, raw.tags, raw.metadata) == (event_id, at, ("order:17",), {"by": "Ann"})
        assert raw.appended_at is not None
        assert abs((raw.appended_at - datetime.now(UTC)).total_seconds()) < 60
        assert await store.head() == 4


async def test_what_is_no_event_is_refused(database: databases.Database) -> None:
    """Wrong calls say how to call."""
    async with EventStore.connect(database.dsn) as store:
        with pytest.raises(BadInput, match=r"dict is no event.*NewEvent"):
            await store.append("s", [{"type": "x"}])  # type: ignore[list-item]
        with pytest.raises(UsageError, match="at least one event"):
            await store.append("s", [])
        with pytest.raises(UsageError, match=r"append\(\{stream: events"):
            await store.append({"s": [new()]}, expected_version=3)  # type: ignore[call-overload]


async def test_missing_schema_names_the_fix(empty_database: databases.Database) -> None:
    """Without a migrated schema the error says what to run."""
    with pytest.raises(SchemaMissing, match="headrace migrate"):
        async with EventStore.connect(empty_database.dsn):
            pass


@pytest.mark.both_versions
async def test_plain_sql_of_any_client(database: databases.Database) -> None:
    """INSERT, multi-row VALUES and COPY need stream, version, type and data; everything else is the database's."""
    async with database.connection() as plain, opened(database) as events:
        await plain.execute("insert into headrace.events (stream, version, type, data) values ('a', 1, 'T', '1')")
        await plain.execute(
            "insert into headrace.events (stream, version, type, data) values ('a', 2, 'T', '2'), ('a', 3, 'T', '3')"
        )
        await plain.copy_records_to_table(
            "events",
            schema_name="headrace",
            columns=["stream", "version", "type", "data"],
            records=[("a", 4, "T", "4"), ("a", 5, "T", "5")],
        )
        read = (await events.read()).events
        assert [event.data for event in read] == [1, 2, 3, 4, 5]
        assert len({event.event_id for event in read}) == 5
        assert len({event.commit_id for event in read}) == 3
        assert all(event.recorded_at and event.appended_at for event in read)


# ----------------------------------------------------------------------------------------------------------- conditions


async def test_condition_on_tags(database: databases.Database) -> None:
    """An append is refused when an event with all the tags (and one of the types) lies after the position; nothing is
    stored then, and the message says what was found.
    """
    async with opened(database) as events:
        await events.append([("x", new("Booked", tags=["course:1", "student:9"])), ("x", new("Paid"))])
        blind = [("y", new("Booked", tags=["course:1"]))]
        with pytest.raises(Conflict, match=r'type "Booked" with the tags \{course:1\} is at position 1, after 0'):
            await events.append(blind, None, AppendCondition(["course:1"]))
        with pytest.raises(Conflict):
            await events.append(blind, None, AppendCondition(["student:9", "course:1"], types=["Booked"]))
        assert len((await events.read()).events) == 2
        for passing in (
            AppendCondition(["course:2"]),
            AppendCondition(["course:1", "student:8"]),
            AppendCondition(["course:1"], types=["Cancelled"]),
            AppendCondition(["course:1", "student:9"], after=Position(1)),
        ):
            await events.append([("z", new())], None, passing)
        with pytest.raises(UsageError, match="at least one tag"):
            await events.append([("z", new())], None, AppendCondition([]))


async def test_condition_looks_at_all_of_a_long_log(database: databases.Database) -> None:
    """Near or far, first or last: an event that breaks the condition is found in a log of any length."""
    async with opened(database) as events:
        marked = {1: "near", 150: "middle", 900: "far", 1500: "last"}
        log = [("s", new("T", tags=[f"k:{marked[n]}"] if n in marked else [])) for n in range(1, 1501)]
        await events.append(log)
        for position, name in marked.items():
            for after in (0, position - 1):
                with pytest.raises(Conflict, match=f"at position {position}, after {after}"):
                    await events.append([("x", new())], None, AppendCondition([f"k:{name}"], Position(after)))
            await events.append([("x", new())], None, AppendCondition([f"k:{name}"], Position(position)))
            await events.append([("x", new())], None, AppendCondition([f"k:{name}"], types=["Other"]))


async def test_condition_costs_the_same_in_a_long_log(database: databases.Database) -> None:
    """A condition on a rare tag reads few pages of 60,000 events, wherever its position is, on any kept plan."""
    async with database.connection() as plain:
        await plain.execute(
            """insert into headrace.events (stream, version, type, data, tags)
               select 's' || n % 1000, n / 1000 + 1, 'T', '{}', array['student:' || n, 'course:' || n % 100]
                 from generate_series(1, 60000) n"""
        )
        for turn in range(16):
            after = 0 if turn % 2 else 59_990
            tag = f"student:new{turn}"
            plan = await plain.fetchval(
                f"""explain (analyze, buffers, format json) select * from headrace.append_v1(
                        array['n'], array['T'], array['1'], null, array['{{{tag}}}'], null, null, null, null,
                        array['{tag}'], null, {after})"""
            )
            buffers = json.loads(plan)[0]["Plan"]["Shared Hit Blocks"]
            # The first call of each kind also reads the catalogue, to plan.
            assert turn < 2 or buffers < 150, (turn, buffers)


async def test_one_of_many_wins_a_condition(database: databases.Database) -> None:
    """Of twenty conditional appends that would break each other's condition one succeeds."""
    async with opened(database, max_size=20) as events:
        condition = AppendCondition(["course:1"])
        results = await asyncio.gather(
            *(events.append([(f"s{n}", new(tags=["a", "course:1", "z"]))], None, condition) for n in range(20)),
            return_exceptions=True,
        )
        assert sum(isinstance(result, Conflict) for result in results) == 19
        assert len((await events.read()).events) == 1


async def test_different_conditions_that_cross(database: databases.Database) -> None:
    """Two appends whose events break each other's condition, under different first tags, cannot both succeed."""
    async with opened(database, max_size=2) as events:
        for turn in range(20):
            left, right, both = f"l:{turn}", f"r:{turn}", [f"l:{turn}", f"r:{turn}"]
            results = await asyncio.gather(
                events.append([(f"a{turn}", new(tags=both))], None, AppendCondition([left])),
                events.append([(f"b{turn}", new(tags=both))], None, AppendCondition([right])),
                return_exceptions=True,
            )
            assert sum(isinstance(result, Conflict) for result in results) == 1, results


@pytest.mark.both_versions
async def test_condition_waits_for_an_open_append_of_its_tag(database: databases.Database) -> None:
    """An append by the function that is open and carries the tag has drawn its position: the condition waits for its
    end, and then holds or not. Without that wait it would pass beside an event that lies before its own.
    """
    async with database.connection() as plain, opened(database) as events:
        for end, refused in (("commit", True), ("rollback", False)):
            await plain.execute("begin")
            await plain.execute(
                """select * from headrace.append_v1(array['s'], array['T'], array['1'], null, array['{course:1}'],
                                                    null, null, null, null, null, null, null)"""
            )
            position = await events.head()
            conditional = asyncio.create_task(
                events.append([("y", new(tags=["course:1"]))], None, AppendCondition(["course:1"], after=position))
            )
            await until(lambda: _somebody_waits(plain), message="the conditional append waits")
            await plain.execute(end)
            if refused:
                with pytest.raises(Conflict):
                    await conditional
            else:
                await conditional


async def test_appends_without_the_tag_do_not_wait(database: databases.Database) -> None:
    """A condition waits for nobody but appends that carry its first tag."""
    async with database.connection() as plain, opened(database) as events:
        await plain.execute("begin")
        await plain.execute(
            """select * from headrace.append_v1(array['s', 's'], array['T', 'T'], array['1', '1'], null,
                                                array['{course:2}', null], null, null, null, null, null, null, null)"""
        )
        await events.append([("y", new(tags=["course:1"]))], None, AppendCondition(["course:1"]))
        await plain.execute("rollback")


async def test_very_many_tags_in_one_append_still_exclude_conditions(database: databases.Database) -> None:
    """An append with more tags than the lock table should hold excludes all conditions instead of locking each tag."""
    async with database.connection() as plain, opened(database) as events:
        await plain.execute("begin")
        await plain.execute(
            """select * from headrace.append_v1(
                   array(select 'bulk' from generate_series(1, 5000)), array(select 'T' from generate_series(1, 5000)),
                   array(select '1' from generate_series(1, 5000)), null,
                   array(select '{course:' || n || '}' from generate_series(1, 5000) n),
                   null, null, null, null, null, null, null)"""
        )
        locks = await plain.fetchval("select count(*) from pg_locks where locktype = 'advisory'")
        assert locks == 1
        conditional = asyncio.create_task(
            events.append([("y", new(tags=["course:77"]))], None, AppendCondition(["course:77"]))
        )
        await until(lambda: _somebody_waits(plain), message="the conditional append waits")
        await plain.execute("commit")
        with pytest.raises(Conflict):
            await conditional


async def test_read_for_append_sees_what_was_open(database: databases.Database) -> None:
    """A decision's read waits for open appends of its tag: none can appear below what it read, under its condition."""
    async with database.connection() as plain, opened(database) as events:
        await events.append([("x", new("Booked", tags=["course:1"]))])
        await plain.execute("begin")
        await plain.execute(
            """select * from headrace.append_v1(array['s'], array['Booked'], array['1'], null, array['{course:1}'],
                                                null, null, null, null, null, null, null)"""
        )
        await events.append([("x", new("Booked", tags=["course:1"]))])
        reading = asyncio.create_task(events.read_for_append(["course:1"], ["Booked"]))
        await until(lambda: _somebody_waits(plain), message="the read waits")
        await plain.execute("commit")
        found, condition = await reading
        assert [event.stream for event in found] == ["x", "s", "x"]
        await events.append([("y", new("Booked", tags=["course:1"]))], None, condition)
        with pytest.raises(Conflict):
            await events.append([("y", new("Booked", tags=["course:1"]))], None, condition)


async def _somebody_waits(connection: Any) -> bool:
    return bool(await connection.fetchval("select exists (select from pg_locks where not granted)"))


# --------------------------------------------------------------------------------------------------------- hostile data


@pytest.mark.both_versions
@pytest.mark.parametrize(
    "data",
    ["a\x00b", {"k\x00": 1}, RawJson(r'"\u0000"'), RawJson(r'"\\\u0000"'), "\ud800", RawJson(r'"\ud800"'),
     RawJson(r'"\udc00\ud800"'), RawJson(r'"\ud800\\\udc00"'), RawJson("{"), RawJson("1e999999"), float("inf"),
     float("nan"), object()],
    ids=repr,
)  # fmt: skip
async def test_hostile_data_is_refused_at_the_append(database: databases.Database, data: Any) -> None:
    """What jsonb cannot keep is refused by the place of its event, and nothing of the batch is stored."""
    async with opened(database) as events:
        with pytest.raises(UnstorableEvent, match=r"event 2 of this batch \(stream 'bad', type 'T'\): data") as refused:
            await events.append([("good", new()), ("bad", new("T", data))])
        assert refused.value.index == 1
        assert (await events.read()).events == ()


@pytest.mark.parametrize(
    "data",
    [RawJson(r'"\\u0000"'), RawJson(r'"\\\\ud800"'), RawJson(r'"\ud83d\ude00"'), "\U0001f600", "\\u0000", "", None,
     "x" * 1_000_000, json.loads("[" * 500 + "]" * 500), 10**40, RawJson("1.000"), {"": {"": [[]]}}],
    ids=lambda data: repr(data)[:30],
)  # fmt: skip
async def test_unusual_data_passes(database: databases.Database, data: Any) -> None:
    """Escaped backslashes, four-byte characters, deep nesting, a megabyte of text and long numbers come back equal."""
    async with opened(database) as events:
        await events.append([("s", NewEvent("T", data))])
        (event,) = (await events.read()).events
        assert event.data == (json.loads(data) if isinstance(data, RawJson) else data)


async def test_hostile_names_are_refused_at_the_append(database: databases.Database) -> None:
    """NUL and half surrogates in stream, type, tags and metadata are named; a naive time is too."""
    async with opened(database) as events:
        for stream, event, words in (
            ("s\x00", new(), "the stream"),
            ("s", new("T\ud800"), "the type"),
            ("s", new(tags=["a", "b\x00"]), "a tag"),
            ("s", new(tags="ab"), "list of texts"),
            ("s", new(metadata={"a": "\x00"}), "metadata"),
            ("s", new(recorded_at=datetime(2020, 1, 1)), "time zone"),  # noqa: DTZ001 - the point of it
        ):
            with pytest.raises(UnstorableEvent, match=words):
                await events.append([(stream, event)])


async def test_hostile_but_legal_names_pass(database: databases.Database) -> None:
    """Quotes, braces, backslashes, commas and every script are text like any other."""
    async with opened(database) as events:
        strange = ['a"b', "a\\b", "{a,b}", "", "NULL", "שלום", "\U0001f600", " ", "a'b;--"]
        await events.append([(name, new(name, tags=[name, f"{name}2"])) for name in strange])
        read = (await events.read()).events
        assert [(e.stream, e.type, e.tags) for e in read] == [(n, n, (n, f"{n}2")) for n in strange]
        for name in strange:
            page = await events.read(wanted=EventFilter((name,), (name,), (name,)))
            assert [event.stream for event in page.events] == [name]


# --------------------------------------------------------------------------------------------------------------- import


def import_ids(count: int) -> list[UUID]:
    """Return ids as an importer derives them."""
    return [UUID(int=n + 1) for n in range(count)]


async def test_import_is_repeatable(database: databases.Database) -> None:
    """Importing again, overlapping, or with an id twice in one chunk adds every event once, versions without a gap."""
    async with opened(database) as events:
        log = [(f"s{n % 3}", new(data=n, event_id=i)) for n, i in enumerate(import_ids(100))]
        assert await events.import_chunk(log[:40]) == 40
        assert await events.import_chunk(log[:40]) == 0
        assert await events.import_chunk(log[20:] + log[90:]) == 60
        read = (await events.read()).events
        assert [event.data for event in read] == list(range(100))
        assert {event.stream: event.version for event in read} == {"s0": 34, "s1": 33, "s2": 33}
        assert await events.import_chunk([]) == 0


async def test_two_importers_at_once(database: databases.Database) -> None:
    """Two processes that import the same file at the same time add every event once."""
    async with opened(database, max_size=8) as events:
        log = [("s", new(data=n, event_id=i)) for n, i in enumerate(import_ids(400))]
        chunks = [log[at : at + 50] for at in range(0, 400, 50)]
        added = await asyncio.gather(*(events.import_chunk(chunk) for chunk in chunks for _ in range(2)))
        assert sum(added) == 400
        assert len((await events.read()).events) == 400


async def test_a_bad_event_spoils_its_chunk(database: databases.Database) -> None:
    """Nothing of a chunk with a bad event is stored; the error carries its place."""
    async with opened(database) as events:
        log = [("s", new(data=n, event_id=i)) for n, i in enumerate(import_ids(10))]
        for bad in (RawJson("1e999999"), "a\x00"):
            with pytest.raises(UnstorableEvent) as refused:
                await events.import_chunk([*log[:7], ("s", new(data=bad, event_id=uuid4())), *log[7:]])
            assert refused.value.index == 7
        with pytest.raises(UnstorableEvent, match="event_id"):
            await events.import_chunk([("s", new())])
        assert (await events.read()).events == ()
