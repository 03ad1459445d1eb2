"""What a handler is given for its parameters: by type, in any order, and untouched where no model is asked for."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Optional

import pytest

from headrace.domain.errors import BadDeclaration
from headrace.domain.event import Event
from headrace.domain.ids import PartitionKey
from headrace.subscribers.binding import bind
from headrace.subscribers.context import Connection, Context, HandlerValues, StopHere
from headrace.subscribers.declare import batch, on, on_failed, projector
from support.loans import BookLent, FakeConnection, an_event, bound, call, copied, event_as_it_is, given_to, values


def test_values_are_given_by_type_in_any_order() -> None:
    """ARG-1: any order, any subset, positional-only and keyword-only, Optional and Annotated; the same one twice."""
    db, context = FakeConnection(), Context("loans", PartitionKey("k"), attempt=2)

    def everything(
        self: object,
        db: Connection,
        /,
        key: PartitionKey,
        again: Optional[Connection],  # noqa: UP045 - the older form is tested
        *,
        event: Annotated[Event[Any], "words"],
        context: Context | None = None,
    ) -> tuple[Any, ...]:
        return db, key, again, event.position, context

    assert given_to(everything, connection=db, context=context) == (db, "book-1", db, 7, context)
    assert given_to(lambda _self: "nothing asked") == "nothing asked"


def test_defaults_stay_where_nothing_fits() -> None:
    """A parameter with a default keeps it if nothing can fill it; what follows is still filled."""

    def method(self: object, event: Event[Any], days: int = 3, plain=4, db: Connection | None = None) -> Any:  # type: ignore[no-untyped-def]  # noqa: ANN001
        return days, plain, db

    db = FakeConnection()

    assert given_to(method, connection=db) == (3, 4, db)


def test_star_arguments_are_left_alone() -> None:
    """`*args` and `**kwargs` ask for nothing."""

    def method(self: object, event: Event[Any], *args: int, **kwargs: int) -> Any:
        return args, kwargs

    assert given_to(method) == ((), {})


def test_key_is_what_the_router_made() -> None:
    """PAR-7: the key is the one handed in, not one that is made anew; `''` for an unpartitioned subscriber."""

    def method(self: object, event: Event[Any], key: PartitionKey) -> str:
        return str(key)

    assert given_to(method, key=PartitionKey("made before the partitioner changed")) == (
        "made before the partitioner changed"
    )
    assert given_to(method, key=PartitionKey("")) == ""


def test_lists_of_events_are_given_to_batches() -> None:
    """list, Sequence and Iterable of events, raw or typed, are the batch."""
    events = [an_event(position=position) for position in (1, 2)]

    def typed(self: object, db: Connection, events: list[Event[BookLent]]) -> Any:
        return [event.data.days for event in events]

    def raw(self: object, events: Sequence[Event[Any]]) -> Any:
        return [event.data for event in events]

    def optional(self: object, events: "Iterable[Event[dict[str, Any]]] | None") -> Any:
        return [event.position for event in events or []]

    assert given_to(typed, batch(BookLent), events=events) == [14, 14]
    assert given_to(raw, batch("BookLent"), events=events) == [{"reader": "ada", "days": 14}] * 2
    assert given_to(optional, batch(), events=events) == [1, 2]


def test_raw_events_are_handed_over_as_they_are() -> None:
    """A handler that wants no model costs no copy of the event."""
    event = an_event()
    events = [event]

    assert given_to(event_as_it_is, event=event) is event
    assert given_to(events_as_they_are, batch(), events=events) is events


def events_as_they_are(self: object, events: list[Event[Any]]) -> Any:
    """Return what was given."""
    return events


def test_key_of_a_batch_needs_one_key() -> None:
    """A batch over several keys has no single key; per_key=True and an unpartitioned subscriber have."""

    def fold(self: object, events: list[Event[Any]], key: PartitionKey) -> str:
        return str(key)

    with pytest.raises(BadDeclaration, match=r"'key: .*PartitionKey'.*event\.key.*per_key=True"):
        bound(fold=batch()(copied(fold)))

    assert given_to(fold, batch(per_key=True), events=[]) == "book-1"
    unpartitioned = projector("log")(type("Log", (), {"fold": batch()(copied(fold))}))
    assert call(bind(unpartitioned()).batch_for("X"), values(events=[])) == "book-1"


def test_failure_hook_gets_event_and_error() -> None:
    """on_failed gets what failed and why, typed as the handlers get it, or raw for a type it does not know."""

    def give_up(self: object, error: Exception, event: Event[Any], context: Context) -> Any:
        return error, event.data, context.attempt

    loans = bound(
        lent=on(BookLent)(copied(event_as_it_is)), rest=on()(copied(event_as_it_is)), give_up=on_failed(give_up)
    )
    error = ValueError()

    assert call(loans.on_failed_hook, values(error=error)) == (error, BookLent(reader="ada", days=14), 1)
    other = an_event("Unheard", "[1]")
    assert call(loans.on_failed_hook, values(error=error, event=other)) == (error, [1], 1)


def test_failure_hook_decodes_only_what_it_looks_at() -> None:
    """Data that made the handler fail does not make the hook fail before it has looked at it."""
    broken = an_event(data='{"reader": 1}')

    def give_up(self: object, event: Event[BookLent]) -> Any:
        return event.position

    loans = bound(lent=on("BookLent")(copied(event_as_it_is)), give_up=on_failed(give_up))

    assert call(loans.on_failed_hook, values(event=broken, error=ValueError())) == 7


def test_handler_values_are_slotted() -> None:
    """A misspelt value is an error, not a value that no handler sees."""
    with pytest.raises(AttributeError):
        HandlerValues().conection = None  # type: ignore[attr-defined]


def test_stop_passes_a_broad_except() -> None:
    """Context.stop ends the handler even if that catches every Exception."""

    def careful(self: object, event: Event[Any], context: Context) -> None:
        try:
            context.stop()
        except Exception as error:
            raise AssertionError from error

    with pytest.raises(StopHere):
        given_to(careful)
