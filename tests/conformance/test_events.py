"""The event store's ports: append, import, read."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from headrace.domain.errors import BadInput, Conflict, UnstorableEvent, UsageError
from headrace.domain.event import AppendCondition, EventFilter, NewEvent
from headrace.domain.ids import START, Position
from headrace.testing.events import new, stream_of
from support.worlds import WorldMaker

AN_ID = UUID(int=77)
NUL_OR_HALF = ["a\0b", "half \ud83e", {"deep": ["\0"]}, {"\0": 1}]


async def test_append_numbers_positions_and_versions(world: WorldMaker) -> None:
    """Positions rise in the order given, versions rise per stream, and the answer names both."""
    async with world() as w:
        appended = await w.appender.append([("a", new("X")), ("b", new("Y")), ("a", new("Z"))])
        page = await w.reader.read()

        assert [(e.stream, e.version, e.type) for e in page.events] == [("a", 1, "X"), ("b", 1, "Y"), ("a", 2, "Z")]
        assert [e.position for e in page.events] == [appended.first, appended.first + 1, appended.last]
        assert appended.versions == {"a": 2, "b": 1}
        assert await w.reader.head() == appended.last


async def test_event_is_read_as_it_was_appended(world: WorldMaker) -> None:
    """Every field that is given comes back; what is not given is filled in by the store."""
    at = datetime(2020, 2, 29, 12, 30, tzinfo=UTC)
    event = NewEvent(
        "Ordered", {"n": 1, "who": "Zoë 🦊", "deep": [None, {"x": 1.5}]}, ["b:1", "a:2"], {"m": 1}, AN_ID, at
    )
    async with world() as w:
        await w.appender.append([("s", event), ("s", new("Plain", 5))])
        read, plain = (await w.reader.read()).events

        assert (read.data, dict(read.metadata), read.tags) == (event.data, {"m": 1}, ("b:1", "a:2"))
        assert (read.event_id, read.recorded_at) == (AN_ID, at)
        assert (plain.data, dict(plain.metadata), plain.tags) == (5, {}, ())
        assert plain.event_id is not None
        assert plain.recorded_at is not None
        assert plain.appended_at is not None
        assert plain.appended_at.tzinfo is not None


async def test_events_of_one_append_share_a_commit(world: WorldMaker) -> None:
    """`commit_id` is the same for events appended together and differs between appends."""
    async with world() as w:
        await w.append("a", "X", "Y")
        await w.append("a", "Z")
        first, second, third = (event.commit_id for event in (await w.reader.read()).events)

        assert first == second
        assert second != third


@pytest.mark.parametrize(
    ("at", "expected", "fits"), [(0, 0, True), (2, 2, True), (2, 1, False), (2, 3, False), (0, 1, False)]
)
async def test_expected_version(world: WorldMaker, at: int, expected: int, fits: bool) -> None:
    """An append with an expected version is stored only when the stream is at it, 0 being a new stream."""
    async with world() as w:
        if at:
            await w.append("a", *["X"] * at)
        if fits:
            appended = await w.appender.append(stream_of("a", "Y"), expected={"a": expected})
            assert appended.versions == {"a": at + 1}
        else:
            with pytest.raises(Conflict, match=f"version {at}, expected was {expected}"):
                await w.appender.append(stream_of("a", "Y"), expected={"a": expected})
            assert len((await w.reader.read()).events) == at


async def test_conflict_stores_nothing_of_the_append(world: WorldMaker) -> None:
    """One stream that is not where it was expected refuses the events of all streams."""
    async with world() as w:
        await w.append("a", "X")
        with pytest.raises(Conflict):
            await w.appender.append([*stream_of("b", "Y"), *stream_of("a", "Z")], expected={"a": 0, "b": 0})
        assert [event.type for event in (await w.reader.read()).events] == ["X"]


@pytest.mark.parametrize(
    ("tags", "after", "types", "holds"),
    [
        (["c:1"], 1, None, False),
        (["c:1"], 2, None, True),
        (["c:1", "s:2"], 0, None, False),
        (["c:1", "s:3"], 0, None, True),
        (["c:2"], 0, None, True),
        (["c:1"], 0, ["Seen"], True),
        (["c:1"], 0, ["Seen", "Booked"], False),
    ],
)
async def test_append_condition(
    world: WorldMaker, tags: list[str], after: int, types: list[str] | None, holds: bool
) -> None:
    """A condition is broken by an event after the position with all of its tags and one of its types."""
    async with world() as w:
        await w.append("other", "Other")
        await w.append("x", "Booked", tags=["s:2", "c:1"])
        condition = AppendCondition(tags, Position(after), types)
        if holds:
            await w.appender.append(stream_of("y", "Booked"), condition=condition)
        else:
            with pytest.raises(Conflict, match="at position 2"):
                await w.appender.append(stream_of("y", "Booked"), condition=condition)
        assert len((await w.reader.read()).events) == 2 + holds


async def test_event_id_is_stored_once(world: WorldMaker) -> None:
    """A second event of one id is a conflict, in the same append too."""
    async with world() as w:
        await w.appender.append([("a", new("X", event_id=AN_ID))])
        with pytest.raises(Conflict):
            await w.appender.append([("b", new("Y", event_id=AN_ID))])
        with pytest.raises(Conflict):
            await w.appender.append([("b", new("Y", event_id=UUID(int=2))), ("b", new("Y", event_id=UUID(int=2)))])
        assert len((await w.reader.read()).events) == 1


async def test_append_of_nothing_is_refused(world: WorldMaker) -> None:
    """An append without events, or a condition without tags, is a mistake of the caller."""
    async with world() as w:
        with pytest.raises(UsageError):
            await w.appender.append([])
        with pytest.raises(UsageError):
            await w.appender.append(stream_of("a", "X"), condition=AppendCondition([]))


@pytest.mark.parametrize("data", NUL_OR_HALF, ids=ascii)
async def test_unstorable_data_is_refused_by_its_place(world: WorldMaker, data: object) -> None:
    """NUL and lone surrogates anywhere in the data are refused, and the error says which event has them."""
    async with world() as w:
        with pytest.raises(UnstorableEvent) as refused:
            await w.appender.append([("a", new("X", {"fine": "\\u0000"})), ("a", new("Y", data))])
        assert refused.value.index == 1
        assert (await w.reader.read()).events == ()


@pytest.mark.parametrize("event", [NewEvent("X\0", {}), NewEvent("X", {}, ["\ud800"]), NewEvent("X", float("nan"))])
async def test_unstorable_event_is_bad_input(world: WorldMaker, event: NewEvent) -> None:
    """The same holds for types and tags, and for values that JSON does not know."""
    async with world() as w:
        with pytest.raises(BadInput):
            await w.appender.append([("a", event)])


async def test_import_adds_each_id_once(world: WorldMaker) -> None:
    """Importing again, or one id twice in a chunk, adds nothing twice and numbers versions without holes."""
    chunk = [("a", new("X", n, event_id=UUID(int=n))) for n in (1, 2, 2, 3)]
    async with world() as w:
        assert await w.appender.import_chunk(chunk) == 3
        assert await w.appender.import_chunk([*chunk, ("b", new("Y", event_id=UUID(int=4)))]) == 1
        assert [(e.stream, e.version) for e in (await w.reader.read()).events] == [
            ("a", 1),
            ("a", 2),
            ("a", 3),
            ("b", 1),
        ]
        assert await w.appender.import_chunk([]) == 0


async def test_import_needs_ids(world: WorldMaker) -> None:
    """An event without an id cannot be imported; nothing of its chunk is stored."""
    async with world() as w:
        with pytest.raises(UnstorableEvent) as refused:
            await w.appender.import_chunk([("a", new("X", event_id=AN_ID)), ("a", new("Y"))])
        assert refused.value.index == 1
        assert await w.reader.head() == START


@pytest.mark.parametrize(
    ("wanted", "positions"),
    [
        (EventFilter(), [1, 2, 3, 4]),
        (EventFilter(types=("A",)), [1, 3]),
        (EventFilter(types=("A", "C")), [1, 3, 4]),
        (EventFilter(types=()), []),
        (EventFilter(types=("a",)), []),
        (EventFilter(streams=("one",)), [1, 2]),
        (EventFilter(tags=("k:1",)), [3, 4]),
        (EventFilter(tags=("k:1", "k:2")), [4]),
        (EventFilter(tags=()), [1, 2, 3, 4]),
        (EventFilter(types=("A",), streams=("two",), tags=("k:1",)), [3]),
    ],
)
async def test_read_filters(world: WorldMaker, wanted: EventFilter, positions: list[int]) -> None:
    """Types, streams and tags filter together; tags must all be there; letters differ by case."""
    async with world() as w:
        await w.append("one", "A", "B")
        await w.append("two", "A", tags=["k:1"])
        await w.append("two", "C", tags=["k:2", "k:1"])
        page = await w.reader.read(wanted=wanted)

        assert [event.position for event in page.events] == positions
        assert (page.last, page.more) == (4, False)


async def test_pages_go_on_where_the_last_one_ended(world: WorldMaker) -> None:
    """A full page ends at its last event and says that there are more; the last rests on the last row of any type."""
    async with world() as w:
        await w.append("s", "A", "B", "A", "B", "A", "B")
        only_a = EventFilter(types=("A",))

        first = await w.reader.read(wanted=only_a, limit=2)
        second = await w.reader.read(first.last, wanted=only_a, limit=2)
        third = await w.reader.read(second.last, wanted=only_a, limit=2)

        assert ([e.position for e in first.events], first.last, first.more) == ([1, 3], 3, True)
        assert ([e.position for e in second.events], second.last, second.more) == ([5], 6, False)
        assert (third.events, third.last, third.more) == ((), 6, False)


async def test_page_of_exactly_the_limit_is_the_last_one(world: WorldMaker) -> None:
    """When as many events are there as the limit, there are no more."""
    async with world() as w:
        await w.append("s", "A", "A", "B")
        page = await w.reader.read(wanted=EventFilter(types=("A",)), limit=2)
        assert (len(page.events), page.last, page.more) == (2, 3, False)


async def test_read_stays_at_or_below_upto(world: WorldMaker) -> None:
    """Nothing above `upto` is read, and the page rests on the last row at or below it, over holes."""
    async with world() as w:
        await w.append("s", "A")
        await w.leave_hole()
        await w.leave_hole()
        await w.append("s", "A")
        page = await w.reader.read(upto=Position(3))
        assert ([e.position for e in page.events], page.last, page.more) == ([1], 1, False)
        assert (await w.reader.read(Position(1), Position(3))).last == 1
        assert (await w.reader.read(Position(1))).last == 4


async def test_page_is_bounded_by_bytes(world: WorldMaker) -> None:
    """A page ends when its bytes are used up; an event larger than the page still comes, alone."""
    async with world() as w:
        large = new("L", "x" * 3000)
        await w.appender.append([("s", large), ("s", large), ("s", new("S"))])
        first = await w.reader.read(max_bytes=1000)
        rest = await w.reader.read(first.last, max_bytes=100_000)

        assert ([e.position for e in first.events], first.more) == ([1], True)
        assert ([e.position for e in rest.events], rest.more) == ([2, 3], False)


async def test_empty_store_is_at_the_start(world: WorldMaker) -> None:
    """Without events the head is the start and a page rests where it began."""
    async with world() as w:
        assert await w.reader.head() == START
        assert (await w.reader.read()).last == START
