"""From loaded events to calls, in the order of each key."""

from typing import Any

from headrace.domain.ids import Run
from headrace.domain.subscription import Kind, Status, Subscription
from headrace.engine.delivering import Step, steps
from headrace.engine.pacing import Pace
from headrace.engine.tracked import Tracked
from support.stubs import StubHandler, StubSubscriber, event, loaded


async def nothing(values: Any) -> None:
    """Handle by doing nothing."""


ON, FOLD, OTHER, EACH = (StubHandler(nothing, name, per_key=name == "each") for name in ("on", "fold", "other", "each"))


def tracked(**handlers: Any) -> Tracked:
    """A tracked subscription with these handlers."""
    stored = Subscription("stub", "app", Kind.PROJECTOR, "g", True, Run(1), Status.ACTIVE, 0)
    return Tracked(StubSubscriber(**handlers), stored, Pace(1, 1, 1, 1), 1.0, 1)


def shape(made: list[Step]) -> list[tuple[str, list[int]]]:
    """Name each step by its handler, with the positions it holds."""
    names = [s.batch.name if s.batch else s.handlers[0].name if s.handlers else "-" for s in made]
    return [(name, [e.position for _, e in s.items]) for name, s in zip(names, made, strict=True)]


def test_a_batch_handler_gets_all_keys_of_the_group_at_once() -> None:
    """Ordered by key, then position, in one call."""
    parts = [loaded(1, event(1), event(4)), loaded(2, event(2), event(3))]

    assert shape(list(steps(tracked(batch={"": FOLD}), parts))) == [("fold", [1, 4, 2, 3])]


def test_per_key_batches_end_with_their_key() -> None:
    """`per_key=True`: one call for each key."""
    parts = [loaded(1, event(1), event(4)), loaded(2, event(2))]

    assert shape(list(steps(tracked(batch={"": EACH}), parts))) == [("each", [1, 4]), ("each", [2])]


def test_a_batch_never_jumps_over_an_event_that_another_handler_wants() -> None:
    """Order within a key holds across handlers: the run ends before the other handler's event."""
    part = loaded(1, event(1, "a"), event(2, "b"), event(3, "a"))

    made = list(steps(tracked(batch={"a": FOLD}, on={"b": ON}), [part]))

    assert shape(made) == [("fold", [1]), ("on", [2]), ("fold", [3])]


def test_two_batch_handlers_take_turns() -> None:
    """Neighbours of one handler form a run; another handler's event ends it."""
    part = loaded(1, event(1, "a"), event(2, "a"), event(3, "b"))

    assert shape(list(steps(tracked(batch={"a": FOLD, "b": OTHER}), [part]))) == [("fold", [1, 2]), ("other", [3])]


def test_unwanted_events_ride_along() -> None:
    """An event without a handler is counted, neither handed over nor a reason to end a run."""
    part = loaded(1, event(1, "x"), event(2, "a"), event(3, "x"), event(4, "a"))

    assert shape(list(steps(tracked(batch={"a": FOLD}), [part]))) == [("-", [1]), ("fold", [2, 3, 4])]


def test_single_steps_hold_one_event_each() -> None:
    """To find the event that fails, a batch is cut into single events."""
    part = loaded(1, event(1), event(2), event(3))

    made = list(steps(tracked(batch={"": FOLD}), [part], single=True))

    assert shape(made) == [("fold", [1]), ("fold", [2]), ("fold", [3])]
