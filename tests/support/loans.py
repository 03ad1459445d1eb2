"""A library that lends books: its events, its subscribers, and how a test binds handlers and calls them.

For the tests of how declared classes become bound handlers; no engine and no database.
"""

import asyncio
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

from pydantic import BaseModel

from headrace.domain.event import Event
from headrace.domain.ids import PartitionKey, Position
from headrace.failures.backoff import RetryPolicy
from headrace.partitioning.keys import Bucket, Stream
from headrace.subscribers.binding import BoundHandler, BoundSubscriber, bind
from headrace.subscribers.context import Connection, Context, HandlerValues
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


def recording(mark: Callable[[Any], Any], name: str) -> Any:
    """Return a marked method that returns its name."""

    def method(self: object, event: Event[Any]) -> str:
        return name

    return mark(method)


def list_taking(mark: Callable[[Any], Any]) -> Any:
    """Return a marked method that takes a list."""

    def method(self: object, events: list[Event[Any]]) -> int:
        return len(events)

    return mark(method)


def event_as_it_is(self: object, event: Event[Any]) -> Any:
    """Return what was given."""
    return event


def typed_event(self: object, event: Event[BookLent]) -> Any:
    """Return the data."""
    return event.data


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


def given_to(method: Callable[..., Any], mark: Any = on("BookLent"), **other: Any) -> Any:  # noqa: B008 - a constant
    """Return what a marked method returns for the usual values."""
    loans = bound(method=mark(copied(method)))
    handler = loans.batch_for("BookLent") or loans.handlers_for("BookLent")[0]
    return call(handler, values(**other))
