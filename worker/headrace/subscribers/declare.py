"""The decorators that declare a subscriber and mark its methods.

They only note down what was written, on the class and on its functions, and refuse at once what can
be judged alone. Classes and methods stay what they are and can be called by tests as always. What
can only be judged together is checked when the subscriber is bound.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from types import FunctionType
from typing import Any, Final, TypeVar, Unpack, cast

from pydantic import BaseModel

from headrace.domain.errors import BadDeclaration
from headrace.domain.ids import checked_name
from headrace.domain.subscription import Kind, StartFrom
from headrace.subscribers.options import Declared, SubscriberOptions, checked_options, is_storable

DECLARED: Final = "__headrace_declared__"
MARKS: Final = "__headrace_marks__"

C = TypeVar("C", bound=type)
F = TypeVar("F")
EventTypes = str | type[BaseModel]


class Role(StrEnum):
    """What a marked method is called for; the value is how it is written."""

    ON = "@on"
    BATCH = "@batch"
    SETUP = "@setup"
    TEARDOWN = "@teardown"
    ON_FAILED = "@on_failed"


@dataclass(frozen=True, slots=True)
class EventType:
    """An event type by its name, with the model that decodes it where one was given."""

    name: str
    model: type[BaseModel] | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """One decorator on one method; no types means every event."""

    role: Role
    types: tuple[EventType, ...] = ()
    per_key: bool = False


def projector(name: str, **options: Unpack[SubscriberOptions]) -> Callable[[C], C]:
    """Declare a class that fills read models: from the beginning, in one transaction with its position.

    Raises:
        BadName: the name cannot name a subscription.
        BadDeclaration: an option that cannot be used; the message names it.

    """
    return _declaring(Kind.PROJECTOR, StartFrom.BEGINNING, name, options)


def reactor(name: str, **options: Unpack[SubscriberOptions]) -> Callable[[C], C]:
    """Declare a class with side effects: from now on, at least once per event.

    Raises:
        BadName: the name cannot name a subscription.
        BadDeclaration: an option that cannot be used; the message names it.

    """
    return _declaring(Kind.REACTOR, StartFrom.NOW, name, options)


def on(*types: EventTypes) -> Callable[[F], F]:
    """Mark a method that handles events one by one: of these types, or every event when none is given.

    A type is a name, or a pydantic model that decodes the data: its class name, or its
    ``__event_type__``, is the name. The mark stays on the function, so a function that stands in
    two classes has the marks of both: give each class its own.

    Raises:
        BadDeclaration: something else was given.

    """
    return _marking(Mark(Role.ON, _event_types(Role.ON, types)))


def batch(*types: EventTypes, per_key: bool = False) -> Callable[[F], F]:
    """Mark a method that handles waiting events as a list, once per claim group, or once per key.

    Raises:
        BadDeclaration: something that is no event type was given.

    """
    return _marking(Mark(Role.BATCH, _event_types(Role.BATCH, types), per_key))


def setup(method: F) -> F:
    """Mark the method that prepares what the subscriber writes to; called once, before the first event."""
    return _marking(Mark(Role.SETUP))(method)


def teardown(method: F) -> F:
    """Mark the method that takes away what ``@setup`` made; called once, when the subscription goes."""
    return _marking(Mark(Role.TEARDOWN))(method)


def on_failed(method: F) -> F:
    """Mark the method that is asked when an event's retries are spent; returning swallows the event."""
    return _marking(Mark(Role.ON_FAILED))(method)


def declared_on(cls: type) -> Declared | None:
    """Return what a class or the nearest of its bases declares."""
    found = getattr(cls, DECLARED, None)
    return found if isinstance(found, Declared) else None


def marks_on(attribute: object) -> tuple[Mark, ...]:
    """Return the marks of what stands in a class body: a function, a static or class method, anything."""
    function = attribute.__func__ if isinstance(attribute, staticmethod | classmethod) else attribute
    found = getattr(function, "__dict__", {}).get(MARKS, ())
    return found if isinstance(found, tuple) else ()


def _declaring(kind: Kind, start: StartFrom, name: str, options: SubscriberOptions) -> Callable[[C], C]:
    bare: object = name
    if isinstance(bare, type):
        raise BadDeclaration(f'{bare.__qualname__}: write @{kind}("a_name"), the name of the subscription')
    declared = checked_options(checked_name(name), kind, start, options)

    def declare(cls: C) -> C:
        if not isinstance(cls, type):
            raise BadDeclaration(f"@{kind}({name!r}) stands above a class, not above {cls!r}")
        if DECLARED in vars(cls):
            raise BadDeclaration(f"{cls.__qualname__} is declared twice: one class is one subscriber")
        setattr(cls, DECLARED, declared)
        return cls

    return declare


def _event_types(role: Role, types: Iterable[Any]) -> tuple[EventType, ...]:
    found: dict[EventType, None] = {}
    for given in types:
        if isinstance(given, FunctionType | staticmethod | classmethod):
            raise BadDeclaration(f'write {role}(), {role}("TypeName") or {role}(Model), with parentheses')
        if isinstance(given, type) and issubclass(given, BaseModel) and given is not BaseModel:
            found[EventType(event_type_name(given), given)] = None
        elif is_storable(given) and given:
            found[EventType(given)] = None
        else:
            raise BadDeclaration(f"{role}({given!r}): an event type is a name or a pydantic model")
    return tuple(found)


def event_type_name(model: type[BaseModel]) -> str:
    """Return the event type that a model stands for: its ``__event_type__``, else the name of the class.

    Raises:
        BadDeclaration: ``__event_type__`` is not a text that can be stored.

    """
    name = getattr(model, "__event_type__", model.__name__)
    if not is_storable(name) or not name:
        raise BadDeclaration(f"{model.__qualname__}.__event_type__ is {name!r}: it must be the name of an event type")
    return cast("str", name)


def _marking(mark: Mark) -> Callable[[F], F]:
    def note(method: F) -> F:
        function = method.__func__ if isinstance(method, staticmethod | classmethod) else method
        if isinstance(function, type) or not callable(getattr(function, "func", function)):
            raise BadDeclaration(f"{mark.role} stands above a method, not above {method!r}")
        try:
            # The decorator nearest to the function is noted first; reading goes from the top down.
            setattr(function, MARKS, (mark, *marks_on(function)))
        except AttributeError:
            raise BadDeclaration(f"{mark.role} cannot mark {method!r}: put it into a def of its own") from None
        return method

    return note
