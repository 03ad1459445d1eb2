"""Annotations that are strings, as `from __future__ import annotations` makes all of them, are read like others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from headrace.domain.errors import BadDeclaration
from headrace.domain.event import Event
from headrace.domain.ids import PartitionKey, Position
from headrace.subscribers.binding import bind
from headrace.subscribers.context import Connection, HandlerValues
from headrace.subscribers.declare import batch, on, projector

if TYPE_CHECKING:
    from decimal import Decimal


@projector("loans", partition_by=None)
class Loans:
    """A subscriber whose annotations are strings, with a model inside and a method that is named like a builtin."""

    class Lent(BaseModel):
        """A model inside the class."""

        days: int

    @on("Lent")
    def lent(self, event: Event[Lent], key: PartitionKey, db: Connection | None) -> Any:
        """Return what was given."""
        return event.data.days, key, db

    @on(Lent)
    def only_for_types(self, event: Event[Lent]) -> Decimal:
        """Return something whose type is not there at run time."""
        return event.data.days  # type: ignore[return-value]

    @batch("Other")
    def list(self, events: list[Event[Any]]) -> int:
        """Have a name that the annotation must not be read as."""
        return len(events)


def values() -> HandlerValues:
    """Return values for one event and for a list."""
    event: Event[Any] = Event(
        position=Position(1), stream="book-1", version=1, type="Lent", raw_data='{"days": 14}', key=PartitionKey("k")
    )
    return HandlerValues(event=event, events=[event], key=PartitionKey("k"))


def test_strings_are_resolved_where_they_were_written() -> None:
    """Names of the module, of the class, and builtins that the class hides."""
    loans = bind(Loans())
    fold = loans.batch_for("Other")

    assert [handler.call(values()) for handler in loans.handlers_for("Lent")] == [(14, "k", None), 14]
    assert fold is not None
    assert fold.call(values()) == 1


def test_inherited_strings_are_resolved_in_their_own_class() -> None:
    """A subclass in another namespace does not change what the annotations of its base mean."""

    class Sub(Loans):
        pass

    assert bind(Sub()).handlers_for("Lent")[0].call(values()) == (14, "k", None)


def test_unresolvable_annotation_is_named() -> None:
    """A name that exists for the type checker only: class, method, parameter and the fix."""

    @projector("broken")
    class Broken:
        @on("A")
        def lent(self, event: Event[Any], price: Decimal) -> None: ...

    with pytest.raises(
        BadDeclaration, match=r"Broken\.lent: the annotation of the parameter 'price: 'Decimal''.*TYPE_CHECKING"
    ):
        bind(Broken())


def test_hostile_annotations_are_named() -> None:
    """An annotation that raises or is no type at all is an error of that parameter."""
    for hostile in ("1/0", "Event[", "no such thing", "Event()", ""):

        def method(self: object, event: Any) -> None: ...

        method.__annotations__["event"] = hostile
        cls = projector("broken")(type("Broken", (), {"method": on("A")(method)}))

        with pytest.raises(BadDeclaration, match=r"Broken\.method: .*parameter 'event"):
            bind(cls())
