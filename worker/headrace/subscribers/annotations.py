"""From a parameter's annotation to what it asks for.

Annotations are objects or strings, aliases, unions with None, and may stand beneath wrappers and
partials. Everything that can be read of them is read here, once; each alone, so that one that
cannot be resolved never gets in the way of another.
"""

import builtins
import inspect
import types
import typing
from collections import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial, partialmethod
from typing import Any, Final

from pydantic import BaseModel

from headrace.domain.event import Event
from headrace.domain.ids import PartitionKey
from headrace.ports.connection import Connection
from headrace.subscribers.context import Context


class Filling(StrEnum):
    """What can fill a parameter; the value is how messages name the annotation."""

    EVENT = "Event or Event[Model]"
    EVENTS = "list[Event] or list[Event[Model]]"
    KEY = "PartitionKey"
    CONNECTION = "Connection"
    CONTEXT = "Context"
    ERROR = "BaseException"


@dataclass(frozen=True, slots=True)
class Asked:
    """What one annotation asks for.

    ``models`` are those that an event's data may be; ``raw`` tells that plain JSON values were asked
    for by name. Neither: the event as it is marked.
    """

    filling: Filling
    models: tuple[type[BaseModel], ...] = ()
    raw: bool = False


class NoModelError(Exception):
    """An event's data is annotated as something that nothing here can make."""


_ALIAS: Final[Any] = getattr(typing, "TypeAliasType", None)  # `type X = …`, from Python 3.12 on
_UNIONS: Final = (typing.Union, types.UnionType)
_LISTS: Final = (list, abc.Sequence, abc.Collection, abc.Iterable)
_PLAIN: Final = (object, dict, list, str, int, float, bool, types.NoneType, abc.Mapping, abc.Sequence)
_BY_IDENTITY: Final = {PartitionKey: Filling.KEY, Connection: Filling.CONNECTION, Context: Filling.CONTEXT}


def read_annotation(annotation: Any) -> Asked | None:
    """Return what a resolved annotation asks for; None when it is none of ours.

    Raises:
        NoModelError: an event whose data is neither a pydantic model nor plain JSON values.

    """
    annotation = _beneath_alias(annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _UNIONS:
        return _read_union([argument for argument in arguments if argument is not types.NoneType])
    if annotation is Event or origin is Event:
        models, raw = _read_data(arguments[0]) if arguments else ((), False)
        return Asked(Filling.EVENT, models, raw)
    if origin in _LISTS:
        inner = read_annotation(arguments[0])
        return Asked(Filling.EVENTS, inner.models, inner.raw) if inner and inner.filling is Filling.EVENT else None
    for kind, filling in _BY_IDENTITY.items():
        if annotation is kind:
            return Asked(filling)
    return Asked(Filling.ERROR) if _is_subclass(annotation, BaseException) else None


def resolve_annotation(function: Callable[..., Any], owner: type, parameter: inspect.Parameter) -> Any:
    """Return a parameter's annotation as an object, read where the function was written.

    Names of the module come first, then those of the class and its bases. Raises whatever the
    annotation raises.
    """

    def holder() -> None: ...

    holder.__annotations__ = {parameter.name: parameter.annotation}
    innermost: Any = function
    for layer in layers(function):
        innermost = layer
    known = getattr(innermost, "__globals__", {})
    local: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        local.update(vars(base))
    local = {name: value for name, value in local.items() if name not in known and not hasattr(builtins, name)}
    return typing.get_type_hints(holder, known, local)[parameter.name]


def layers(function: Any) -> Iterator[Any]:
    """Yield a callable and what lies beneath it: functions of methods, of partials, of wrappers, of ``__call__``."""
    seen: set[int] = set()
    while function is not None and id(function) not in seen:
        seen.add(id(function))
        yield function
        if isinstance(function, types.MethodType):
            function = function.__func__
        elif isinstance(function, partial | partialmethod):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif callable(function) and not isinstance(function, types.FunctionType | types.BuiltinFunctionType | type):
            function = type(function).__call__
        else:
            return


def _read_union(members: list[Any]) -> Asked | None:
    """Return what all members ask for, if it is the same but for the models."""
    read = [read_annotation(member) for member in members]
    found = [asked for asked in read if asked is not None]
    if not found or len(found) != len(read) or len({asked.filling for asked in found}) > 1:
        return None
    models = tuple(model for asked in found for model in asked.models)
    return Asked(found[0].filling, models, any(asked.raw for asked in found))


def _read_data(annotation: Any) -> tuple[tuple[type[BaseModel], ...], bool]:
    """Return the models of an event's data, and whether plain values are asked for as well or instead."""
    annotation = _beneath_alias(annotation)
    origin = typing.get_origin(annotation)
    if origin in _UNIONS:
        parts = [_read_data(argument) for argument in typing.get_args(annotation)]
        return tuple(model for models, _ in parts for model in models), any(raw for _, raw in parts)
    if _is_subclass(annotation, BaseModel) and annotation is not BaseModel:
        return (annotation,), False
    if annotation is Any or annotation is BaseModel or isinstance(annotation, typing.TypeVar):
        return (), False
    if (origin or annotation) in _PLAIN or typing.is_typeddict(origin or annotation):
        return (), True
    raise NoModelError(f"the data of an event is a pydantic model or plain JSON values, not {annotation!r}")


def _beneath_alias(annotation: Any) -> Any:
    while _ALIAS is not None and isinstance(annotation, _ALIAS):
        annotation = annotation.__value__
    return annotation


def _is_subclass(annotation: Any, kind: type) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, kind)
