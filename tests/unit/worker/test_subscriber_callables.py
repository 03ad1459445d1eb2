"""All sorts of callables as handlers: static, wrapped, partial, lambdas, objects; and what is no handler."""

import functools
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

from headrace.domain.event import Event
from headrace.subscribers.binding import bind
from headrace.subscribers.context import Connection
from headrace.subscribers.declare import on, projector
from support.loans import BookLent, bound, call, copied, names, values


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
