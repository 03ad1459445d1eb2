"""The horizon's source: what it sees of the sequence and of rows."""

from headrace.domain.event import EventFilter
from headrace.domain.ids import START, Position
from headrace.partitioning.keys import Stream
from support.worlds import WorldMaker, log_flush_of


async def test_probe_sees_the_sequence_over_holes(world: WorldMaker) -> None:
    """The sequence counts positions that were drawn and never stored; without an open append nobody holds it."""
    async with world() as w:
        assert (await w.horizon.probe()).sequence == START
        await w.append("s", "A", "B")
        await w.leave_hole()
        probe = await w.horizon.probe()
        assert (probe.sequence, probe.holders) == (3, ())


async def test_contiguous_rows_end_at_a_hole(world: WorldMaker) -> None:
    """Rows are followed from the base to the first hole, and not beyond the position asked for."""
    async with world() as w:
        await w.append("s", "A", "B", "C")
        await w.leave_hole()
        await w.append("s", "D")
        assert await w.horizon.contiguous_from(START, Position(5)) == 3
        assert await w.horizon.contiguous_from(START, Position(2)) == 2
        assert await w.horizon.contiguous_from(Position(3), Position(5)) == 3
        assert await w.horizon.contiguous_from(Position(4), Position(5)) == 5


async def test_stored_position_is_the_highest_that_was_reached(world: WorldMaker) -> None:
    """What a router or an unpartitioned subscription has stored was final then; where it was put to start was not."""
    async with world() as w:
        assert await w.horizon.stored_position() == START
        await w.append("s", "A", "B", "C", "D")
        orders = await w.subscribe("orders", Stream())
        await w.route(orders, upto=2)
        assert await w.horizon.stored_position() == 2
        await w.subscribe("late", Stream(), position=4)
        log = await w.subscribe("log", None, position=2)
        assert await w.horizon.stored_position() == 2
        group = await w.claim_log(log, upto=3)
        assert group is not None
        loaded = await w.work().load_log(group, EventFilter(), Position(3), 10, 10**6)
        await w.work().flush(log_flush_of(group, loaded))
        assert await w.horizon.stored_position() == 3


async def test_a_log_that_went_back_shows_a_lower_sequence_until_it_is_restored(world: WorldMaker) -> None:
    """Both logs can go back and draw the same positions again; restored events are what they were, with their times."""
    async with world() as w:
        await w.append("s", "A", "B", "C")
        before = (await w.reader.read()).events[2]
        for to in (1, 0):
            await w.go_back(to)
            assert (await w.horizon.probe()).sequence == to
            assert await w.reader.head() == to
            await w.restore()
        assert (await w.horizon.probe()).sequence == 3
        again = (await w.reader.read()).events[2]
        assert (again.position, again.type, again.appended_at) == (3, "C", before.appended_at)
        await w.go_back(2)
        assert (await w.append("s", "D")).last == 3
        assert [event.type for event in (await w.reader.read()).events] == ["A", "B", "D"]


async def test_check_finds_our_table_exact(world: WorldMaker) -> None:
    """Nothing keeps our own table from being read exactly."""
    async with world() as w:
        assert (await w.horizon.check()).problems == ()
