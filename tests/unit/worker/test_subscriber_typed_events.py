"""In which model a handler sees the data of an event: by its mark, by its annotation, or raw."""

import json
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel, ValidationError

from headrace.domain.errors import BadDeclaration
from headrace.domain.event import Event
from headrace.subscribers.context import Connection, HandlerValues
from headrace.subscribers.declare import batch, on
from support.loans import (
    BookLent,
    BookReturned,
    an_event,
    bound,
    call,
    copied,
    event_as_it_is,
    given_to,
    typed_event,
    values,
)


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


@dataclass
class NotAModel:
    """A dataclass."""


def test_dataclasses_are_no_models() -> None:
    """Data is a pydantic model or plain JSON; a dataclass would be promised and not given."""

    def method(self: object, event: Event[NotAModel]) -> None: ...

    with pytest.raises(BadDeclaration, match="NotAModel"):
        bound(method=on("A")(method))
