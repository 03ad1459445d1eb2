"""What is refused before anything runs, and what can only be refused when the handler is called."""

from collections.abc import Generator
from typing import Any

import pytest

from headrace.domain.errors import BadDeclaration
from headrace.domain.event import Event
from headrace.domain.ids import PartitionKey
from headrace.subscribers.binding import bind
from headrace.subscribers.context import Connection
from headrace.subscribers.declare import batch, on, on_failed, setup, teardown
from support.loans import BookLent, bound, copied, event_as_it_is, given_to, subscriber


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
