"""Decorators: what they note down, what they refuse at once, and that classes stay normal classes."""

from collections.abc import Callable
from datetime import timedelta
from functools import partialmethod
from typing import Any

import pytest
from pydantic import BaseModel

from headrace.domain.errors import BadDeclaration, BadName
from headrace.domain.event import Event
from headrace.domain.ids import Position
from headrace.domain.subscription import Kind, StartFrom
from headrace.failures.backoff import RetryPolicy
from headrace.partitioning.keys import Bucket, Stream, Tag
from headrace.subscribers.declare import (
    EventType,
    Mark,
    Role,
    batch,
    declared_on,
    event_type_name,
    marks_on,
    on,
    on_failed,
    projector,
    reactor,
    setup,
    teardown,
)


class BookLent(BaseModel):
    """A model."""

    title: str


class Renamed(BaseModel):
    """A model whose type has a name of its own."""

    __event_type__ = "book-renamed"


def test_projector_and_reactor_have_their_defaults() -> None:
    """DEC-1: no group and no start given: projector from the beginning, reactor from now, each in its own group."""

    @projector("loans")
    class Loans:
        pass

    @reactor("reminders")
    class Reminders:
        pass

    loans, reminders = declared_on(Loans), declared_on(Reminders)
    assert loans is not None
    assert reminders is not None
    assert (loans.name, loans.kind, loans.group, loans.start) == (
        "loans",
        Kind.PROJECTOR,
        "projector",
        StartFrom.BEGINNING,
    )
    assert (reminders.kind, reminders.group, reminders.start) == (Kind.REACTOR, "reactor", StartFrom.NOW)
    assert (loans.concurrency, loans.limit, loans.timeout, loans.retry) == (16, 1000, None, RetryPolicy())
    left_out = [loans.partition_by, loans.remove_idle_after, loans.partitions_per_claim, loans.streams, loans.tags]
    assert left_out == [None] * 5


def test_options_are_kept_in_plain_units() -> None:
    """Times come as seconds or timedelta and are kept in seconds; texts alone or as a list."""

    @projector(
        "loans",
        partition_by=Bucket(Tag("book"), 64),
        start=17,
        group="nightly",
        remove_idle_after=timedelta(hours=1),
        retry=RetryPolicy(attempts=0),
        concurrency=4,
        timeout=2.5,
        limit=10,
        partitions_per_claim=7,
        streams="only-this",
        tags=["b:2", "a:1", "b:2"],
    )
    class Loans:
        pass

    declared = declared_on(Loans)
    assert declared is not None
    assert declared.start == Position(17)
    assert (declared.remove_idle_after, declared.timeout) == (3600.0, 2.5)
    assert (declared.streams, declared.tags) == (("only-this",), ("a:1", "b:2"))
    assert (declared.group, declared.partitions_per_claim, declared.retry.attempts) == ("nightly", 7, 0)


@pytest.mark.parametrize("name", ["", "a#b", " a", "a ", "x" * 251, "a\nb", None, 7])
def test_names_are_checked_at_declaration(name: Any) -> None:
    """DEC-5: `#`, no character and 251 characters are refused where they are declared; 250 are not."""
    with pytest.raises(BadName):
        projector(name)

    @projector("x" * 250)
    class Long:
        pass

    declared = declared_on(Long)
    assert declared is not None
    assert len(declared.name) == 250


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition_by": Stream}, "partition_by"),
        ({"partition_by": "stream"}, "partition_by"),
        ({"start": "Now"}, "start"),
        ({"start": -1}, "start"),
        ({"start": True}, "start"),
        ({"start": 2**63}, "start"),
        ({"start": None}, "start"),
        ({"group": "a#b"}, "group"),
        ({"group": ""}, "group"),
        ({"remove_idle_after": 60}, "remove_idle_after.*without partition_by"),
        ({"remove_idle_after": 0, "partition_by": Stream()}, "remove_idle_after"),
        ({"partitions_per_claim": 5}, "partitions_per_claim.*without partition_by"),
        ({"partitions_per_claim": 1001, "partition_by": Stream()}, "partitions_per_claim.*1 to 1000"),
        ({"retry": None}, r"retry.*RetryPolicy\(attempts=0\)"),
        ({"retry": 3}, "retry"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 1.0}, "concurrency"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"timeout": "30"}, "timeout"),
        ({"limit": None}, "limit"),
        ({"streams": []}, "streams"),
        ({"streams": [7]}, "streams"),
        ({"tags": 7}, "tags"),
        ({"tags": ["nul\0"]}, "tags"),
        ({"partitionby": Stream()}, "no option partitionby.*partition_by"),
    ],
)
def test_options_are_checked_at_declaration(options: dict[str, Any], message: str) -> None:
    """A value that cannot be used is refused by the name of the subscriber and of the option."""
    with pytest.raises((BadDeclaration, BadName), match=message) as caught:
        projector("loans", **options)
    if isinstance(caught.value, BadDeclaration):
        assert "@projector('loans')" in str(caught.value)


def test_forgotten_parentheses_and_wrong_places_are_named() -> None:
    """A bare decorator, a subscriber decorator on a function, one class declared twice: a message with the fix."""
    bare: Any = projector
    with pytest.raises(BadDeclaration, match=r'write @projector\("a_name"\)'):

        @bare
        class Bare:
            pass

    for decorator in (on, batch):
        with pytest.raises(BadDeclaration, match="with parentheses"):

            @decorator  # type: ignore[arg-type]
            def handler() -> None: ...

    loose: Any = reactor("loose")
    with pytest.raises(BadDeclaration, match="above a class"):
        loose(lambda: None)
    with pytest.raises(BadDeclaration, match="declared twice"):

        @reactor("second")
        @projector("first")
        class Twice:
            pass


@pytest.mark.parametrize("given", [7, "", "nul\0", int, BaseModel, None, ["A", "B"], object()])
def test_event_types_are_names_or_models(given: Any) -> None:
    """Anything else as an event type is refused where it is written."""
    with pytest.raises(BadDeclaration, match="event type is a name or a pydantic model"):
        on(given)


def test_model_names_its_type() -> None:
    """The type is the class name, or `__event_type__`, which must be a name."""

    class Broken(BaseModel):
        __event_type__ = 7

    assert event_type_name(BookLent) == "BookLent"
    assert event_type_name(Renamed) == "book-renamed"
    with pytest.raises(BadDeclaration, match=r"Broken\.__event_type__"):
        on(Broken)


def test_marks_are_noted_on_the_function_in_reading_order() -> None:
    """Stacked marks are read from the top down, above and beneath static and class methods."""

    class Marked:
        @on("A")
        @on(BookLent, "B")
        def stacked(self) -> None: ...

        @on("C")
        @staticmethod
        def outside() -> None: ...

        @classmethod
        @batch("D", per_key=True)
        def inside(cls) -> None: ...

        plain = 7

    assert marks_on(vars(Marked)["stacked"]) == (
        Mark(Role.ON, (EventType("A"),)),
        Mark(Role.ON, (EventType("BookLent", BookLent), EventType("B"))),
    )
    assert marks_on(vars(Marked)["outside"]) == (Mark(Role.ON, (EventType("C"),)),)
    assert marks_on(vars(Marked)["inside"]) == (Mark(Role.BATCH, (EventType("D"),), per_key=True),)
    assert marks_on(vars(Marked)["plain"]) == ()


def test_same_type_twice_is_once() -> None:
    """A type that is named twice in one mark is noted once."""

    @on("A", "A", BookLent, BookLent)
    def handler() -> None: ...

    assert marks_on(handler)[0].types == (EventType("A"), EventType("BookLent", BookLent))


def test_what_cannot_be_marked_is_refused() -> None:
    """A value, a class and a builtin function get a message instead of an attribute error."""
    marker: Callable[[Any], Any] = on("A")
    for wrong in (7, None, BookLent):
        with pytest.raises(BadDeclaration, match="above a method"):
            marker(wrong)
    with pytest.raises(BadDeclaration, match="def of its own"):
        marker(len)
    for hook in (setup, teardown, on_failed):
        with pytest.raises(BadDeclaration, match="above a method"):
            hook(7)


def test_decorated_classes_and_methods_stay_what_they_are() -> None:
    """A subscriber can be made, called and subclassed in a test like any class; a partial method can be marked."""

    @projector("loans", partition_by=Stream())
    class Loans:
        """Own words."""

        def __init__(self, rate: int) -> None:
            self.rate = rate

        @on("BookLent")
        def lent(self, event: Event[Any]) -> int:
            """Return the rate."""
            return self.rate

        lent_again = on("Again")(partialmethod(lent))

    assert Loans(3).lent(None) == 3  # type: ignore[arg-type]
    assert Loans.__doc__ == "Own words."
    assert Loans.lent.__doc__ == "Return the rate."
    assert marks_on(vars(Loans)["lent_again"])
    assert declared_on(type("Sub", (Loans,), {})) is declared_on(Loans)
    assert declared_on(BookLent) is None
