"""From a method to a plan of how to call it.

Handlers are given what they name by type, in any order. The plan is a closure over readers of
:class:`HandlerValues`, made once, so that a call inspects nothing. Events come with raw data; a typed
handler gets a view of them. What nothing can fill is refused by class, method and parameter.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from inspect import Parameter
from operator import attrgetter
from types import MethodType
from typing import Any, Protocol

from pydantic import BaseModel

from headrace.domain.errors import BadDeclaration
from headrace.domain.event import Decoder, Event
from headrace.subscribers.annotations import Asked, Filling, NoModelError, read_annotation, resolve_annotation
from headrace.subscribers.context import HandlerValues
from headrace.subscribers.declare import EventType, event_type_name


class Call(Protocol):
    """A method whose parameters are filled from the values."""

    def __call__(self, values: HandlerValues) -> Any:
        """Call it."""
        ...


_Reader = Callable[[HandlerValues], Any]

_READERS: dict[Filling, _Reader] = {
    Filling.EVENT: attrgetter("event"),
    Filling.EVENTS: attrgetter("events"),
    Filling.KEY: attrgetter("key"),
    Filling.CONNECTION: attrgetter("connection"),
    Filling.CONTEXT: attrgetter("context"),
    Filling.ERROR: attrgetter("error"),
}


@dataclass(frozen=True, slots=True)
class Offer:
    """What a method of one role may ask for.

    ``where`` names class and method in messages, ``role`` how it is marked. ``types`` are the events
    that it gets, each with the model it was marked with; ``every`` tells that any other may come too.
    ``lenient``: an annotation that does not fit the events is no error, they come as they are marked.
    ``hints`` say why something is not on offer.
    """

    where: str
    role: str
    fillings: tuple[Filling, ...]
    types: tuple[EventType, ...] = ()
    every: bool = False
    lenient: bool = False
    hints: Mapping[Filling, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """How to call one method: the call itself, and what it takes."""

    call: Call
    takes: frozenset[Filling]


def plan_call(function: Callable[..., Any], owner: type, offer: Offer) -> Plan:
    """Return the plan of a bound method of class ``owner``.

    Raises:
        BadDeclaration: a parameter that nothing on offer can fill, or an annotation that cannot be
            resolved or does not fit the events.

    """
    _check_self(function, owner, offer)
    in_order: list[_Reader] = []
    by_name: dict[str, _Reader] = {}
    takes: set[Filling] = set()
    skipped = False
    for parameter in _parameters(function, offer):
        asked = _asked(function, owner, parameter, offer)
        if asked is None or (skipped and parameter.kind is Parameter.POSITIONAL_ONLY):
            skipped = True
            continue
        takes.add(asked.filling)
        reader = _reader(asked, parameter, offer)
        if skipped or parameter.kind is Parameter.KEYWORD_ONLY:
            by_name[parameter.name] = reader
        else:
            in_order.append(reader)
    return Plan(_call(function, in_order, by_name), frozenset(takes))


def _parameters(function: Callable[..., Any], offer: Offer) -> Iterator[Parameter]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise BadDeclaration(
            f"{offer.where}: its parameters cannot be read ({error}): put the call into a def of its own"
        ) from error
    for parameter in signature.parameters.values():
        if parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            yield parameter


def _check_self(function: Callable[..., Any], owner: type, offer: Offer) -> None:
    """Refuse a method without ``self``: Python would hand the object over in place of the event."""
    if not isinstance(function, MethodType):
        return
    first = next(_parameters(function.__func__, offer), None)
    if first is None or first.annotation is Parameter.empty:
        return
    try:
        asked = read_annotation(resolve_annotation(function, owner, first))
    except Exception:  # noqa: BLE001 - whatever stands at self is nobody's business, unless it is one of ours
        return
    if asked is not None:
        raise BadDeclaration(f"{offer.where}: {_shown(first)} stands in the place of self; put self before it")


def _asked(function: Callable[..., Any], owner: type, parameter: Parameter, offer: Offer) -> Asked | None:
    """Return what a parameter asks for; None when it keeps its default."""
    optional = parameter.default is not Parameter.empty
    if parameter.annotation is Parameter.empty:
        if optional:
            return None
        raise _unfilled(parameter, offer, "it has no annotation")
    try:
        asked = read_annotation(resolve_annotation(function, owner, parameter))
    except NoModelError as error:
        raise _unfilled(parameter, offer, str(error)) from None
    except Exception as error:
        raise BadDeclaration(
            f"{offer.where}: the annotation of the parameter {_shown(parameter)} cannot be resolved "
            f"({type(error).__name__}: {error}); define or import what it names at the top of its module, "
            "outside of `if TYPE_CHECKING`"
        ) from error
    if asked is not None and asked.filling in offer.fillings:
        return asked
    if optional:
        return None
    raise _unfilled(parameter, offer, offer.hints.get(asked.filling, "") if asked else "")


def _unfilled(parameter: Parameter, offer: Offer, why: str) -> BadDeclaration:
    return BadDeclaration(
        f"{offer.where}: nothing can fill the parameter {_shown(parameter)}{': ' if why else ''}{why}; "
        f"a method marked {offer.role} may ask, by annotation and in any order, for "
        f"{', '.join(offer.fillings) or 'nothing'}"
    )


def _shown(parameter: Parameter) -> str:
    return f"'{parameter.replace(default=Parameter.empty)}'"


def _reader(asked: Asked, parameter: Parameter, offer: Offer) -> _Reader:
    read = _READERS[asked.filling]
    if asked.filling not in (Filling.EVENT, Filling.EVENTS):
        return read
    if offer.every and asked.models and not offer.lenient:
        raise _unfilled(parameter, offer, f"{offer.role}() takes every event, raw; write Event")
    models = {each.name: _model_for(each, asked, parameter, offer) for each in offer.types}
    only_one = len(asked.models) == 1 and not asked.raw
    other = asked.models[0] if offer.every and only_one else None
    decoders = {name: decoder_of(model) for name, model in models.items() if model is not None}
    if not decoders and other is None:
        return read
    if len(decoders) == len(models) and len(set(decoders.values())) == 1 and not offer.every:
        return _seeing_as(next(iter(decoders.values())), asked.filling)
    return _seeing_by_type(decoders, decoder_of(other) if other else None, asked.filling)


def _model_for(event_type: EventType, asked: Asked, parameter: Parameter, offer: Offer) -> type[BaseModel] | None:
    """Return the model in which one type of event comes; None for raw."""
    if asked.raw and not asked.models:
        return None
    marked = event_type.model
    if marked is not None:
        if not offer.lenient and asked.models and not any(issubclass(marked, model) for model in asked.models):
            raise _unfilled(parameter, offer, f"events of type {event_type.name!r} come as {marked.__name__}")
        return marked
    named = [model for model in asked.models if event_type_name(model) == event_type.name]
    if named:
        return named[0]
    if asked.raw or not asked.models:
        return None
    if len(asked.models) == 1:
        return asked.models[0]
    if offer.lenient:
        return None
    raise _unfilled(
        parameter, offer, f"which model an event of type {event_type.name!r} is cannot be told; mark it by its model"
    )


def _seeing_as(decode: Decoder, filling: Filling) -> _Reader:
    read = _READERS[filling]
    if filling is Filling.EVENT:
        return lambda values: read(values).seen_as(decode)
    return lambda values: [event.seen_as(decode) for event in read(values)]


def _seeing_by_type(decoders: Mapping[str, Decoder], other: Decoder | None, filling: Filling) -> _Reader:
    def see(event: Event[Any]) -> Event[Any]:
        decode = decoders.get(event.type, other)
        return event if decode is None else event.seen_as(decode)

    read = _READERS[filling]
    if filling is Filling.EVENT:
        return lambda values: see(read(values))
    return lambda values: [see(event) for event in read(values)]


@cache
def decoder_of(model: type[BaseModel]) -> Decoder:
    """Return what makes ``model`` of JSON text, or of a value; always the same one."""
    return Decoder(model.model_validate_json, model.model_validate)


def _call(function: Callable[..., Any], in_order: list[_Reader], by_name: dict[str, _Reader]) -> Call:
    """Return a closure that calls ``function``; the usual numbers of parameters without a loop."""
    if by_name:
        named = tuple(by_name.items())
        return lambda values: function(
            *[read(values) for read in in_order], **{name: read(values) for name, read in named}
        )
    match in_order:
        case [one]:
            return lambda values: function(one(values))
        case [one, two]:
            return lambda values: function(one(values), two(values))
        case [one, two, three]:
            return lambda values: function(one(values), two(values), three(values))
    return lambda values: function(*[read(values) for read in in_order])
