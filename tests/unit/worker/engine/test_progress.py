"""What a flush writes."""

from headrace.domain.ids import Position
from headrace.engine.progress import Done
from headrace.ports.work import LoadedPartition
from support.stubs import event, loaded


def handle(done: Done, partition: LoadedPartition, *positions: int) -> None:
    """Note some positions of a partition as handled."""
    for position in positions:
        done.add(partition, Position(position))


def test_each_handled_event_is_given_out_once() -> None:
    """A reactor flushes again and again: an inbox entry must not be deleted twice."""
    one = loaded(1, event(3), event(5), event(9))
    done = Done([one], partitioned=True)
    handle(done, one, 3)
    (first,) = done.take()
    handle(done, one, 5, 9)
    (second,) = done.take()

    assert (first.positions, second.positions) == ((3,), (5, 9))
    assert (first.last, second.last) == (3, 9)
    assert done.take() == ()


def test_vanished_events_pass_with_the_ones_around_them() -> None:
    """An event that is gone is passed as soon as a later one is handled, or nothing else is left."""
    one = loaded(1, event(3), event(7), vanished=(5, 9))
    done = Done([one], partitioned=True)
    handle(done, one, 3)
    (first,) = done.take()
    handle(done, one, 7)
    (second,) = done.take()

    assert (first.positions, first.vanished) == ((3,), 0)
    assert ({5, 7, 9}, 2, 9) == (set(second.positions), second.vanished, second.last)


def test_a_partition_with_nothing_but_vanished_events_moves() -> None:
    """PAR-15: no endless claim of a partition whose events are all gone."""
    (only,) = Done([loaded(1, vanished=(4, 6))], partitioned=True).take()

    assert (only.positions, only.vanished, only.last) == ((4, 6), 2, 6)


def test_an_unpartitioned_subscription_moves_beyond_unwanted_events_when_all_is_handled() -> None:
    """It rests on the last row that was looked at, but never beyond an event that was not handled."""
    log = loaded(1, event(3), event(5), position=2, to=20)
    done = Done([log], partitioned=False)
    handle(done, log, 3)
    (first,) = done.take()
    handle(done, log, 5)
    (second,) = done.take()

    assert (first.start, first.last) == (2, 3)
    assert (second.start, second.last) == (3, 20)


def test_a_partition_that_left_the_group_is_not_written_any_more() -> None:
    """A key that was parked belongs to nobody; the final flush must not touch it."""
    one, two = loaded(1, event(3)), loaded(2, event(4))
    done = Done([one, two], partitioned=True)
    handle(done, one, 3)
    handle(done, two, 4)
    done.close(one)

    assert [p.part for p in done.take()] == [2]


def test_progress_is_in_partition_order() -> None:
    """The flush locks rows in the order of partitions: the one lock order of everybody."""
    parts = [loaded(n, event(n)) for n in (5, 1, 3)]
    done = Done(parts, partitioned=True)
    for part in parts:
        handle(done, part, part.part)

    assert [p.part for p in done.take()] == [1, 3, 5]


def test_a_key_that_had_failed_is_reported_as_recovered() -> None:
    """The flush deletes the failures row of a key with attempts, and only then."""
    one, two = loaded(1, event(3), attempts=2), loaded(2, event(4))
    done = Done([one, two], partitioned=True)
    handle(done, one, 3)
    handle(done, two, 4)

    assert [p.recovered for p in done.take()] == [True, False]


def test_an_event_at_or_below_the_position_still_goes_to_the_flush() -> None:
    """Its handler has written something: the flush must refuse it, not commit an effect without an inbox entry."""
    one = loaded(1, event(3), position=7)
    done = Done([one], partitioned=True)
    handle(done, one, 3)
    (made,) = done.take()

    assert (made.positions, made.last, made.start) == ((3,), 3, 7)
