"""Binding: which handlers an event gets, in which order, with what; and what is refused before anything runs."""

import asyncio
import functools
import inspect
import json
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Annotated, Any, Generic, Optional, TypedDict, TypeVar
from unittest.mock import Mock

import pytest
from pydantic import BaseModel, ValidationError

from headrace.domain.errors import BadDeclaration
from headrace.domain.event import Event, EventFilter
from headrace.domain.ids import PartitionKey, Position
from headrace.domain.subscription import Kind, StartFrom
from headrace.failures.backoff import RetryPolicy
from headrace.partitioning.keys import Bucket, Stream
from headrace.ports import subscribers as ports
from headrace.subscribers import annotations
from headrace.subscribers.app import App
from headrace.subscribers.binding import BoundHandler, BoundSubscriber, bind
from headrace.subscribers.context import Connection, Context, HandlerValues, StopHere
from headrace.subscribers.declare import batch, on, on_failed, projector, reactor, setup, teardown


class BookLent(BaseModel):
    """A reader took a book."""

    reader: str
    days: int


class BookReturned(BaseModel):
    """A reader brought a book back."""

    reader: str


class FakeConnection:
    """Remembers what was executed."""

    def __init__(self) -> None:
        self.executed: list[tuple[Any, ...]] = []

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """Note the statement."""
        self.executed.append((query, *args))
        return "INSERT 0 1"


def an_event(type_: str = "BookLent", data: str = '{"reader": "ada", "days": 14}', position: int = 7) -> Event[Any]:
    """Return an event as the engine reads it."""
    return Event(position=Position(position), stream="book-1", version=1, type=type_, raw_data=data)


def values(**given: Any) -> HandlerValues:
    """Return handler values with an event, a key, a connection and a context, unless others are given."""
    usual: dict[str, Any] = {
        "event": an_event(),
        "key": PartitionKey("book-1"),
        "connection": FakeConnection(),
        "context": Context("loans"),
    }
    return HandlerValues(**(usual | given))


def subscriber(**members: Any) -> Any:
    """Return an object of a new projector class with these members."""
    return projector("loans", partition_by=Stream())(type("Loans", (), members))()


def bound(**members: Any) -> BoundSubscriber:
    """Bind an object of a new projector class with these members."""
    return bind(subscriber(**members))


def copied(function: Callable[..., Any]) -> Any:
    """Return a copy of a function without its marks: a function of two classes would have those of both."""
    assert isinstance(function, FunctionType)
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__ = dict(function.__annotations__)
    return copy


def names(handlers: Iterable[BoundHandler]) -> list[str]:
    """Return the methods' names."""
    return [handler.name.rpartition(".")[2] for handler in handlers]


def call(handler: BoundHandler | None, given: HandlerValues) -> Any:
    """Call a handler, and await it if it is a coroutine function."""
    assert handler is not None
    result = handler.call(given)

    async def finish() -> Any:
        return await result

    return asyncio.run(finish()) if handler.is_async else result


# ---- the whole, once


@projector("loans_by_reader", partition_by=Stream(), remove_idle_after=3600)
class LoansByReader:
    """A projector with every kind of handler but batches."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    @setup
    async def create(self, db: Connection) -> None:
        """Make the table."""
        await db.execute("create table loans_by_reader ()")

    @on(BookLent)
    async def lent(self, event: Event[BookLent], key: PartitionKey, db: Connection) -> None:
        """Count the days."""
        await db.execute("insert", key, event.data.days)

    @on("BookReturned", "BookLost")
    def gone(self, db: Connection, event: Event[dict[str, Any]]) -> None:
        """Take raw data, parameters in another order, in a plain def."""
        self.seen.append((event.type, event.data, db))

    @teardown
    async def drop(self, db: Connection) -> None:
        """Drop the table."""
        await db.execute("drop table loans_by_reader")


@projector("loan_totals", partition_by=Stream())
class LoanTotals:
    """A batch projector."""

    @batch(BookLent)
    async def fold(self, events: list[Event[BookLent]], db: Connection) -> None:
        """Add up."""
        await db.execute("upsert", sum(event.data.days for event in events))


@reactor("reminders", partition_by=Bucket(Stream(), 64), start="now", retry=RetryPolicy(attempts=2), concurrency=3)
class Reminders:
    """A reactor with a hook for what fails for good."""

    def __init__(self) -> None:
        self.given_up: list[Any] = []

    @on("BookLent")
    async def remind(self, event: Event) -> str:
        """Return the idempotency key."""
        return str(event.execution_id)

    @on_failed
    async def give_up(self, event: Event[Any], error: BaseException) -> None:
        """Note what failed."""
        self.given_up.append((event.position, error))


def test_an_application_works_end_to_end() -> None:
    """The contract of the API page: declared classes become handlers that get what they name by type."""
    app = App(LoansByReader(), LoanTotals(), Reminders(), name="library")
    loans, totals, reminders = app.subscribers.values()
    db = FakeConnection()

    call(loans.setup_hook, values(connection=db))
    for handler in loans.handlers_for("BookLent"):
        call(handler, values(connection=db))
    call(totals.batch_for("BookLent"), values(events=[an_event(), an_event()], connection=db))
    call(loans.teardown_hook, values(connection=db))
    failure = ValueError("no address")
    call(reminders.on_failed_hook, values(error=failure))

    assert db.executed == [
        ("create table loans_by_reader ()",),
        ("insert", "book-1", 14),
        ("upsert", 28),
        ("drop table loans_by_reader",),
    ]
    assert reminders.subscriber.given_up == [(7, failure)]  # type: ignore[attr-defined]
    assert call(reminders.handlers_for("BookLent")[0], values()) == str(an_event().execution_id)


def test_bound_subscriber_says_what_was_declared() -> None:
    """The engine reads everything from the bound form, through its port; the store from its declaration."""
    app = App(LoansByReader(), LoanTotals(), Reminders(), name="library")
    through_the_port: ports.Subscribers = app.subscribers
    assert set(through_the_port) == {"loans_by_reader", "loan_totals", "reminders"}
    loans, totals, reminders = app.subscribers.values()

    assert (loans.name, loans.kind, loans.group, loans.start) == (
        "loans_by_reader",
        Kind.PROJECTOR,
        "projector",
        StartFrom.BEGINNING,
    )
    assert loans.wanted == EventFilter(types=("BookLent", "BookLost", "BookReturned"))
    assert (loans.partitioner, loans.remove_idle_after, loans.limit) == (Stream(), 3600.0, 1000)
    assert (reminders.concurrency, reminders.retry.attempts, reminders.timeout) == (3, 2, None)
    assert (loans.has_batch, totals.has_batch, loans.partitions_per_claim) == (False, True, None)
    declaration = reminders.declaration("library")
    assert (declaration.app, declaration.partitioned, declaration.partitioner) == (
        "library",
        True,
        "Bucket(Stream(), 64)",
    )
    assert (declaration.replayable, loans.declaration("library").replayable) == (False, True)
    assert declaration.start is StartFrom.NOW


def test_sync_and_async_handlers_are_told_apart() -> None:
    """`def` and `async def` both work; the engine is told which is which, and who needs what."""
    loans = bind(LoansByReader())
    (lent,), (gone,) = loans.handlers_for("BookLent"), loans.handlers_for("BookLost")

    assert (lent.is_async, lent.needs_connection, lent.needs_context) == (True, True, False)
    assert (gone.is_async, gone.needs_connection) == (False, True)
    assert lent.name == "LoansByReader.lent"


# ---- which handlers


def recording(mark: Callable[[Any], Any], name: str) -> Any:
    """Return a marked method that returns its name."""

    def method(self: object, event: Event[Any]) -> str:
        return name

    return mark(method)


def test_typed_handlers_run_before_those_of_every_event() -> None:
    """DEC-3: two typed handlers and a wildcard, whatever their order in the class: typed first, each once."""
    loans = bound(
        any_event=recording(on(), "any"),
        first=recording(on("BookLent"), "first"),
        other=recording(on("Other"), "other"),
        second=recording(on("Third", "BookLent"), "second"),
        last=recording(on(), "last"),
    )

    assert names(loans.handlers_for("BookLent")) == ["first", "second", "any_event", "last"]
    assert names(loans.handlers_for("Unheard")) == ["any_event", "last"]
    assert loans.wanted.types is None
    assert loans.batch_for("BookLent") is None


def test_handler_of_a_type_and_of_every_event_is_called_once() -> None:
    """DEC-3: one method that is marked for a type and for all is called once, among the typed ones."""
    loans = bound(both=on("BookLent")(recording(on(), "both")), typed=recording(on("BookLent"), "typed"))

    assert names(loans.handlers_for("BookLent")) == ["both", "typed"]
    assert names(loans.handlers_for("Other")) == ["both"]


def test_unwanted_types_have_no_handler() -> None:
    """Without a wildcard, an event of another type gets nothing, and is not wanted."""
    loans = bound(lent=recording(on("BookLent"), "lent"))

    assert loans.handlers_for("Other") == ()
    assert loans.batch_for("Other") is None
    assert loans.wanted == EventFilter(types=("BookLent",))


def test_streams_and_tags_narrow_what_is_wanted() -> None:
    """The filters of the decorator get into the filter of the subscription."""
    cls = projector("loans", streams=["b", "a"], tags="x:1")(type("Loans", (), {"lent": recording(on("A"), "lent")}))

    assert bind(cls()).wanted == EventFilter(types=("A",), streams=("a", "b"), tags=("x:1",))


def list_taking(mark: Callable[[Any], Any]) -> Any:
    """Return a marked method that takes a list."""

    def method(self: object, events: list[Event[Any]]) -> int:
        return len(events)

    return mark(method)


def test_batches_are_found_by_type_or_for_every_event() -> None:
    """`@batch()` without a type takes every event; per_key is told to the engine."""
    by_type = bound(fold=list_taking(batch("A", "B")))
    for_all = bound(fold=list_taking(batch(per_key=True)))

    assert by_type.batch_for("B") is by_type.batch_for("A") is not None
    assert by_type.batch_for("C") is None
    assert by_type.handlers_for("A") == ()
    found = for_all.batch_for("Whatever")
    assert found is not None
    assert (found.per_key, for_all.wanted.types, by_type.wanted.types) == (True, None, ("A", "B"))


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (on("A"), batch("A", "B"), "A"),
        (on(), batch("A"), "A"),
        (on("A"), batch(), "A"),
        (on(), batch(), "every event"),
        (batch("A"), batch("A"), "A"),
        (batch("A"), batch(), "A"),
        (batch(), batch(), "every event"),
    ],
)
def test_one_type_has_on_handlers_or_one_batch(one: Any, other: Any, shared: str) -> None:
    """`@on` and `@batch`, or two `@batch`, for one type in one class are refused, with both methods named."""
    with pytest.raises(BadDeclaration, match=rf"Loans: {shared} would go to \w+ \(@batch\) and to \w+"):
        bound(first=list_taking(one), second=list_taking(other))


def test_on_and_batch_for_different_types_are_fine() -> None:
    """Different types may be handled in different ways."""
    loans = bound(one=recording(on("A"), "one"), many=list_taking(batch("B")))

    assert names(loans.handlers_for("A")) == ["one"]
    assert loans.batch_for("B") is not None
    assert loans.wanted.types == ("A", "B")


def test_roles_do_not_mix() -> None:
    """One method has one role, a hook is there once, on_failed and batch exclude each other, something is handled."""
    with pytest.raises(BadDeclaration, match=r"Loans\.x is marked @batch and @on"):
        bound(x=on("A")(list_taking(batch("B"))))
    with pytest.raises(BadDeclaration, match=r"Loans\.x is marked @on and @setup"):
        bound(x=setup(recording(on("A"), "x")))
    for hook in (setup, teardown, on_failed):
        with pytest.raises(BadDeclaration, match=rf"Loans: x and y are marked @{hook.__name__}: one can be"):
            bound(x=hook(lambda _self: None), y=hook(lambda _self: None), z=recording(on(), "z"))
    with pytest.raises(BadDeclaration, match="@on_failed is asked about one event"):
        bound(x=on_failed(lambda _self: None), y=list_taking(batch()))
    with pytest.raises(BadDeclaration, match="Loans handles nothing"):
        bound(x=setup(lambda _self: None))


# ---- inheritance


class Base:
    """Handlers to inherit."""

    @on("A")
    def first(self, event: Event[Any]) -> str:
        """Handle A."""
        return "base first"

    @on("A")
    def second(self, event: Event[Any]) -> str:
        """Handle A."""
        return "base second"

    @on("A")
    def third(self, event: Event[Any]) -> str:
        """Handle A."""
        return "base third"


def test_inherited_handlers_come_first_and_overrides_keep_their_place() -> None:
    """An override, marked again or not, is called in place of what it overrides; None takes a handler away."""

    @projector("loans")
    class Loans(Base):
        @on("A")
        def own(self, event: Event[Any]) -> str:
            """Handle A."""
            return "own"

        def second(self, event: Event[Any]) -> str:
            """Override without a mark."""
            return "override"

        @on("B")
        def first(self, event: Event[Any]) -> str:
            """Override with another mark."""
            return "override"

        third = None  # type: ignore[assignment]

    loans = bind(Loans())

    assert names(loans.handlers_for("A")) == ["second", "own"]
    assert names(loans.handlers_for("B")) == ["first"]
    assert call(loans.handlers_for("A")[0], values()) == "override"
    assert loans.handlers_for("A")[0].name.endswith("Loans.second")


def test_subclass_of_a_subscriber_is_one() -> None:
    """A class that inherits from a declared one, as a test double does, needs no decorator of its own."""

    class Double(LoanTotals):
        pass

    assert bind(Double()).name == "loan_totals"


M = TypeVar("M")


def test_generic_base_gives_raw_or_marked_events() -> None:
    """An annotation with an open type variable says nothing, so the mark decides."""

    class Generics(Generic[M]):
        @on(BookLent)
        def lent(self, event: Event[M]) -> Any:
            """Return the data."""
            return event.data

    @projector("loans")
    class Loans(Generics[int]):
        pass

    assert call(bind(Loans()).handlers_for("BookLent")[0], values()) == BookLent(reader="ada", days=14)


# ---- what is given


def given_to(method: Callable[..., Any], mark: Any = on("BookLent"), **other: Any) -> Any:  # noqa: B008 - a constant
    """Return what a marked method returns for the usual values."""
    loans = bound(method=mark(copied(method)))
    handler = loans.batch_for("BookLent") or loans.handlers_for("BookLent")[0]
    return call(handler, values(**other))


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


def event_as_it_is(self: object, event: Event[Any]) -> Any:
    """Return what was given."""
    return event


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


# ---- typed events


def test_model_of_the_mark_decodes_the_data() -> None:
    """`@on(Model)` gives model data whether the annotation says so or says nothing; by the name of the type."""

    class Named(BaseModel):
        __event_type__ = "BookLent"
        days: int

    def typed(self: object, event: Event[Named]) -> Any:
        return event.data

    def bare(self: object, event: Event) -> Any:
        return event.data

    assert given_to(typed, on(Named)) == Named(days=14)
    assert given_to(bare, on(Named)) == Named(days=14)
    assert given_to(bare) == {"reader": "ada", "days": 14}


def test_model_of_the_annotation_decodes_named_types() -> None:
    """`@on("Name")` gives raw data, or model data where the annotation names one."""

    def typed(self: object, event: Event[BookLent]) -> Any:
        return event.data

    assert given_to(typed) == BookLent(reader="ada", days=14)


def test_raw_annotation_wins_over_the_model_of_the_mark() -> None:
    """Who marks by model and asks for a dict gets a dict: the annotation is what the code relies on."""

    class Lent(TypedDict):
        days: int

    def as_dict(self: object, event: Event[dict[str, Any]]) -> Any:
        return event.data

    def as_typed_dict(self: object, event: Event[Lent]) -> Any:
        return event.data

    for method in (as_dict, as_typed_dict):
        assert given_to(method, on(BookLent)) == {"reader": "ada", "days": 14}


def test_several_types_are_decoded_each_by_its_own_model() -> None:
    """A handler of several types gets each in its model, by mark or by the name of the model; the rest raw."""
    returned = an_event("BookReturned", '{"reader": "bob"}')

    def either(self: object, event: Event[BookLent | BookReturned]) -> Any:
        return event.data

    def unions(self: object, event: Event[BookLent] | Event[BookReturned]) -> Any:
        return event.data

    def partly(self: object, event: Event[BookLent | dict[str, Any]]) -> Any:
        return event.data

    for mark in (on(BookLent, BookReturned), on("BookLent", "BookReturned"), on(BookLent, "BookReturned")):
        for method in (either, unions):
            handler = bound(x=mark(copied(method))).handlers_for("BookReturned")[0]
            assert call(handler, values()) == BookLent(reader="ada", days=14)
            assert call(handler, values(event=returned)) == BookReturned(reader="bob")
    handler = bound(x=on(BookLent, "BookReturned")(partly)).handlers_for("BookLent")[0]
    assert call(handler, values()) == BookLent(reader="ada", days=14)
    assert call(handler, values(event=returned)) == {"reader": "bob"}


def test_base_model_in_the_annotation_is_enough() -> None:
    """An annotation may name a base class of the marked models."""

    class Longer(BookLent):
        __event_type__ = "BookLent"
        note: str = ""

    def method(self: object, event: Event[BookLent]) -> Any:
        return event.data

    assert given_to(method, on(Longer)) == Longer(reader="ada", days=14)


@pytest.mark.parametrize(
    ("mark", "annotation", "message"),
    [
        (on(BookLent), Event[BookReturned], "'BookLent' come as BookLent"),
        (on("X"), Event[BookLent | BookReturned], "cannot be told; mark it by its model"),
        (on(), Event[BookLent], r"@on\(\) takes every event, raw; write Event"),
        (batch(), list[Event[BookLent]], r"@batch\(\) takes every event, raw; write Event"),
        (on("X"), Event[set[int]], "pydantic model or plain JSON"),
        (on("X"), Event[HandlerValues], "pydantic model or plain JSON"),
        (on("X"), Event[BookLent] | Connection, "may ask"),
    ],
)
def test_event_annotations_must_fit_the_marks(mark: Any, annotation: Any, message: str) -> None:
    """An annotation that promises data which the events do not have is refused, with the parameter named."""

    def method(self: object, event: Any) -> None: ...

    method.__annotations__["event"] = annotation

    with pytest.raises(BadDeclaration, match=rf"Loans\.method: nothing can fill the parameter 'event: .*{message}"):
        bound(method=mark(method))


def test_two_models_of_one_name_in_one_method_are_refused() -> None:
    """Which of two models of one type a single method gets could not be told."""

    class Twin(BaseModel):
        __event_type__ = "BookLent"

    with pytest.raises(BadDeclaration, match=r"Loans\.method: two models are called 'BookLent'"):
        bound(method=on(BookLent, Twin)(copied(event_as_it_is)))
    assert bound(method=on("BookLent", BookLent)(copied(typed_event))).wanted.types == ("BookLent",)


def typed_event(self: object, event: Event[BookLent]) -> Any:
    """Return the data."""
    return event.data


def test_handlers_of_one_type_may_see_it_differently() -> None:
    """Each handler gets its own view of one event, whatever the others made of it."""

    class Short(BaseModel):
        __event_type__ = "BookLent"
        days: int

    def short(self: object, event: Event[Short]) -> Any:
        return event.data

    loans = bound(
        one=on(BookLent)(copied(typed_event)), two=on(Short)(copied(short)), three=on()(copied(event_as_it_is))
    )
    given = values()

    seen = [call(handler, given) for handler in loans.handlers_for("BookLent")]
    assert seen[:2] == [BookLent(reader="ada", days=14), Short(days=14)]
    assert seen[2].data == {"reader": "ada", "days": 14}


def test_data_that_does_not_fit_fails_in_the_handler() -> None:
    """Data is decoded at the first look, so the error is the handler's own and concerns its event only."""

    def careless(self: object, event: Event[BookLent]) -> Any:
        return event.position

    broken = an_event(data='{"reader": "ada"}')

    assert given_to(careless, on(BookLent), event=broken) == 7
    with pytest.raises(ValidationError, match="days"):
        given_to(typed_event, on(BookLent), event=broken)
    with pytest.raises(json.JSONDecodeError):
        _ = given_to(event_as_it_is, on("BookLent"), event=an_event(data="{")).data


# ---- what is refused


class Clock:
    """Something that the engine knows nothing of."""


@pytest.mark.parametrize(
    ("mark", "annotation", "message"),
    [
        (on("A"), Clock, "Event or Event\\[Model\\], PartitionKey, Connection, Context"),
        (on("A"), str, "may ask"),
        (on("A"), Any, "may ask"),
        (on("A"), object, "may ask"),
        (on("A"), list[Event[Any]], "list of events goes to @batch"),
        (on("A"), BaseException, "may ask"),
        (on("A"), BookLent, "may ask"),
        (on("A"), type[Event[Any]], "may ask"),
        (on("A"), None, "may ask"),
        (batch("A"), Event[Any], "single event goes to @on"),
        (batch("A"), list[BookLent], "list\\[Event\\]"),
        (batch("A"), list, "list\\[Event\\]"),
        (batch("A"), dict[str, Event[Any]], "may ask"),
        (setup, Event[Any], "a method marked @setup may ask.*for Connection$"),
        (teardown, PartitionKey, "@teardown"),
        (on_failed, list[Event[Any]], "BaseException"),
    ],
)
def test_what_nothing_can_fill_is_refused(mark: Any, annotation: Any, message: str) -> None:
    """ARG-1: the error at the start names class, method, parameter, and what is possible."""

    def method(self: object, wrong: Any) -> None: ...

    method.__annotations__["wrong"] = annotation

    with pytest.raises(BadDeclaration, match=rf"Loans\.method: nothing can fill the parameter 'wrong.*{message}"):
        bound(method=mark(method), other=on("Z")(copied(event_as_it_is)))


def test_parameters_without_annotation_are_refused() -> None:
    """A name alone says nothing, in a lambda as in a def."""
    with pytest.raises(
        BadDeclaration, match=r"Loans\.handler: nothing can fill the parameter '_event': it has no annot"
    ):
        bound(handler=on("A")(lambda _self, _event: None))


def test_forgotten_self_is_refused() -> None:
    """Without self the object itself would be handed over in place of the event."""

    def lent(event: Event[Any]) -> None: ...

    def create(db: Connection) -> None: ...

    with pytest.raises(BadDeclaration, match=r"Loans\.lent: 'event: .*' stands in the place of self"):
        bound(lent=on("A")(lent))
    with pytest.raises(BadDeclaration, match=r"Loans\.create: 'db: .*' stands in the place of self"):
        bound(create=setup(create), lent=on("A")(copied(event_as_it_is)))


def test_generators_are_refused() -> None:
    """A handler with a yield would be called and do nothing, and its event would be lost."""

    def plain(self: object, event: Event[Any]) -> Generator[int, None, None]:
        yield 1

    async def asynchronous(self: object, event: Event[Any]) -> Any:
        yield 1

    for method in (plain, asynchronous):
        with pytest.raises(BadDeclaration, match=r"Loans\.method holds a yield"):
            bound(method=on("A")(method))


def test_plain_def_that_returns_an_awaitable_is_an_error_of_the_event() -> None:
    """A forgotten `async` loses no event: nothing ran, so the call fails with the fix."""

    async def work() -> None:
        """Never runs."""

    def forgotten(self: object, event: Event[Any]) -> Any:
        return work()

    with pytest.raises(BadDeclaration, match=r"Loans\.method is a plain def but returned an awaitable.*async def"):
        given_to(forgotten)


def test_instance_attribute_that_hides_a_handler_is_checked() -> None:
    """What the object really has under the name of a marked method is what would be called."""
    broken = subscriber(lent=on("A")(copied(event_as_it_is)))
    broken.lent = 7

    with pytest.raises(BadDeclaration, match=r"Loans\.lent is marked @on but cannot be called"):
        bind(broken)


def test_unreadable_signatures_are_refused() -> None:
    """A callable that does not tell its parameters needs a def of its own."""

    class Odd:
        __signature__ = "none"

        def __call__(self) -> None: ...

    with pytest.raises(BadDeclaration, match=r"Loans\.odd: its parameters cannot be read.*a def of its own"):
        bound(odd=on("A")(Odd()))


# ---- all sorts of callables


def test_static_and_class_methods_are_handlers() -> None:
    """With the mark above or beneath, they get what they ask for and nothing more."""

    @projector("loans")
    class Loans:
        @on("BookLent")
        @staticmethod
        def static(event: Event[Any]) -> str:
            """Return the position."""
            return f"static {event.position}"

        @classmethod
        @on("BookLent")
        def of_class(cls, event: Event[Any]) -> str:
            """Return the class."""
            return f"{cls.__name__} {event.position}"

    handlers = bind(Loans()).handlers_for("BookLent")

    assert [call(handler, values()) for handler in handlers] == ["static 7", "Loans 7"]


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function in a plain def."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def retried(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a coroutine function in a coroutine function."""

    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return wrapper


def test_wrapped_methods_are_read_through_the_wrapper() -> None:
    """functools.wraps keeps annotations and marks; async beneath a plain wrapper is still async."""

    async def work(self: object, event: Event[BookLent], db: Connection) -> int:
        return event.data.days

    def plain(self: object, event: Event[BookLent]) -> int:
        return event.data.days

    for wrap in (logged, retried, lambda function: logged(logged(function))):
        inside = bound(x=wrap(on(BookLent)(copied(work)))).handlers_for("BookLent")[0]
        outside = bound(x=on(BookLent)(wrap(copied(work)))).handlers_for("BookLent")[0]
        for handler in (inside, outside):
            assert handler.is_async
            assert handler.needs_connection
            assert call(handler, values()) == 14
    handler = bound(x=on(BookLent)(logged(plain))).handlers_for("BookLent")[0]
    assert not handler.is_async
    assert call(handler, values()) == 14


def test_partial_methods_lambdas_and_callable_objects_are_handlers() -> None:
    """Whatever can be called and tells its parameters can handle."""

    class Callable_:  # noqa: N801
        async def __call__(self, event: Event[Any]) -> str:
            return "object"

    def scaled(self: object, factor: int, event: Event[BookLent]) -> int:
        return event.data.days * factor

    loans = bound(
        partial=on(BookLent)(functools.partialmethod(scaled, 2)),
        function=on("BookLent")(lambda _self: "lambda"),
        thing=on("BookLent")(Callable_()),
    )
    partial, function, thing = loans.handlers_for("BookLent")

    assert [call(each, values()) for each in (partial, function, thing)] == [28, "lambda", "object"]
    assert (partial.is_async, function.is_async, thing.is_async) == (False, False, True)


def test_other_attributes_are_not_touched() -> None:
    """Properties are not read, mocks and metaclass tricks are not taken for handlers."""

    @projector("loans")
    class Loans:
        mock = Mock()

        @property
        def costly(self) -> int:
            """Never to be read."""
            raise AssertionError("read")

        @on("A")
        def lent(self, event: Event[Any]) -> None:
            """Handle A."""

    assert names(bind(Loans()).handlers_for("A")) == ["lent"]


# ---- resolved once


def test_annotations_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """ARG-2: 10,000 events after binding, no annotation or signature is read any more."""
    handler = bind(LoansByReader()).handlers_for("BookLost")[0]

    def forbidden(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("inspected at call time")

    monkeypatch.setattr(inspect, "signature", forbidden)
    monkeypatch.setattr(annotations, "read_annotation", forbidden)
    given = values(event=an_event("BookLost"))
    for _ in range(10_000):
        handler.call(given)


def test_handler_values_are_slotted() -> None:
    """A misspelt value is an error, not a value that no handler sees."""
    with pytest.raises(AttributeError):
        HandlerValues().conection = None  # type: ignore[attr-defined]


# ---- context


def test_stop_passes_a_broad_except() -> None:
    """Context.stop ends the handler even if that catches every Exception."""

    def careful(self: object, event: Event[Any], context: Context) -> None:
        try:
            context.stop()
        except Exception as error:
            raise AssertionError from error

    with pytest.raises(StopHere):
        given_to(careful)


@dataclass
class NotAModel:
    """A dataclass."""


def test_dataclasses_are_no_models() -> None:
    """Data is a pydantic model or plain JSON; a dataclass would be promised and not given."""

    def method(self: object, event: Event[NotAModel]) -> None: ...

    with pytest.raises(BadDeclaration, match="NotAModel"):
        bound(method=on("A")(method))
