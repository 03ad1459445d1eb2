"""From a class to its marked methods, in the order in which they are called.

A subscriber may inherit, override and stack marks; what that means is decided here. Nothing of the
class is called, and no property of an object is looked at.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.domain.errors import BadDeclaration
from headrace.subscribers.declare import EventType, Mark, Role, marks_on


@dataclass(frozen=True, slots=True)
class Method:
    """A marked method: all its marks, which are of one role, put together.

    ``every`` tells that it gets all events; ``names`` are the types that it names.
    """

    name: str
    role: Role
    types: tuple[EventType, ...]
    every: bool
    per_key: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its types, in order."""
        return tuple(each.name for each in self.types)


def marked_methods(owner: type) -> list[Method]:
    """Return the marked methods of a class in definition order, bases first.

    A method that overrides a marked one stays what that is, at its place, whether it is marked again
    (its own marks then count) or not: an override must not stop handling unnoticed. An attribute set
    to None takes the method away.

    Raises:
        BadDeclaration: a method has two roles, or two models for one type.

    """
    found: dict[str, tuple[Mark, ...]] = {}
    for base in reversed(owner.__mro__):
        for name, attribute in vars(base).items():
            marks = marks_on(attribute)
            if marks:
                found[name] = marks
            elif attribute is None:
                found.pop(name, None)
    return [_joined(f"{owner.__qualname__}.{name}", name, marks) for name, marks in found.items()]


def events_of_both(one: Method, other: Method) -> str:
    """Return which events both methods would get, in words; '' for none."""
    if one.every and other.every:
        return "every event"
    if one.every or other.every:
        return ", ".join((other if one.every else one).names)
    return ", ".join(name for name in one.names if name in other.names)


def merged_types(types: Iterable[EventType]) -> tuple[EventType, ...]:
    """Return one event type per name, in order; one with a model goes before one without."""
    found: dict[str, EventType] = {}
    for each in types:
        if each.name not in found or found[each.name].model is None:
            found[each.name] = each
    return tuple(found.values())


def _joined(where: str, name: str, marks: tuple[Mark, ...]) -> Method:
    roles = {mark.role for mark in marks}
    if len(roles) > 1:
        raise BadDeclaration(f"{where} is marked {' and '.join(sorted(roles))}: a method has one of these roles")
    given = [each for mark in marks for each in mark.types]
    types = merged_types(given)
    models = {each.name: each.model for each in types}
    for each in given:
        if each.model not in (None, models[each.name]):
            raise BadDeclaration(f"{where}: two models are called {each.name!r}; one method can take one of them")
    return Method(
        name=name,
        role=marks[0].role,
        types=types,
        every=any(not mark.types for mark in marks if mark.role in (Role.ON, Role.BATCH)),
        per_key=any(mark.per_key for mark in marks),
    )
