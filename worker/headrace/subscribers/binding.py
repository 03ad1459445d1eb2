"""From an object of a declared class to what the engine calls.

Binding reads the class once, in definition order, and checks everything that can only be judged
together. The result is frozen and looks handlers up by event type. It runs nothing: whether a
handler belongs into a thread, a task or a transaction is the engine's business.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from headrace.domain.errors import BadDeclaration
from headrace.domain.event import EventFilter
from headrace.domain.subscription import Declaration, Kind, Start
from headrace.failures.backoff import RetryPolicy
from headrace.partitioning.keys import Partitioner, describe
from headrace.subscribers.annotations import Filling, layers
from headrace.subscribers.calls import Call, Offer, plan_call
from headrace.subscribers.context import HandlerValues
from headrace.subscribers.declare import Role, declared_on
from headrace.subscribers.methods import Method, events_of_both, marked_methods, merged_types
from headrace.subscribers.options import Declared

_NO_HINTS: Mapping[Filling, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class BoundHandler:
    """One method of one subscriber, ready to be called.

    ``call(values)`` returns an awaitable when ``is_async``, else it blocks and returns what the
    method returns. ``name`` is ``Class.method``.
    """

    name: str
    is_async: bool
    needs_connection: bool
    needs_context: bool
    call: Call
    per_key: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class BoundSubscriber:
    """A subscriber with its handlers by event type; times in seconds.

    ``wanted`` has no types when some handler takes every event.
    """

    subscriber: object
    declared: Declared
    wanted: EventFilter
    has_batch: bool
    setup_hook: BoundHandler | None = None
    teardown_hook: BoundHandler | None = None
    on_failed_hook: BoundHandler | None = None
    _handlers: Mapping[str, tuple[BoundHandler, ...]] = field(default_factory=dict)
    _for_every: tuple[BoundHandler, ...] = ()
    _batches: Mapping[str, BoundHandler] = field(default_factory=dict)
    _batch_for_every: BoundHandler | None = None

    @property
    def name(self) -> str:
        """The name of the subscription."""
        return self.declared.name

    @property
    def kind(self) -> Kind:
        """Projector or reactor."""
        return self.declared.kind

    @property
    def group(self) -> str:
        """The group to select it by."""
        return self.declared.group

    @property
    def start(self) -> Start:
        """Where a new subscription starts."""
        return self.declared.start

    @property
    def partitioner(self) -> Partitioner | None:
        """What must stay in order; None for the whole log."""
        return self.declared.partition_by

    @property
    def retry(self) -> RetryPolicy:
        """What happens to failing keys."""
        return self.declared.retry

    @property
    def concurrency(self) -> int:
        """How many keys of a group a reactor handles at once."""
        return self.declared.concurrency

    @property
    def timeout(self) -> float | None:
        """Seconds that a handler may take; None leaves it to the settings."""
        return self.declared.timeout

    @property
    def limit(self) -> int:
        """Most events per partition and load."""
        return self.declared.limit

    @property
    def partitions_per_claim(self) -> int | None:
        """A fixed size of claims; None adapts it."""
        return self.declared.partitions_per_claim

    @property
    def remove_idle_after(self) -> float | None:
        """Seconds after which an idle partition's row goes; None keeps it."""
        return self.declared.remove_idle_after

    def handlers_for(self, event_type: str) -> tuple[BoundHandler, ...]:
        """Return the ``@on`` handlers of a type, in the order to call them: typed ones, then those of every event."""
        return self._handlers.get(event_type, self._for_every)

    def batch_for(self, event_type: str) -> BoundHandler | None:
        """Return the ``@batch`` handler of a type, if there is one."""
        return self._batches.get(event_type, self._batch_for_every)

    def declaration(self, app: str) -> Declaration:
        """Return what is stored of this subscriber at setup."""
        return Declaration(
            name=self.name,
            app=app,
            kind=self.kind,
            group=self.group,
            partitioned=self.partitioner is not None,
            wanted=self.wanted,
            start=self.start,
            partitioner=describe(self.partitioner),
            remove_idle_after=self.remove_idle_after,
            replayable=self.kind is Kind.PROJECTOR,
        )


def bind(subscriber: object) -> BoundSubscriber:
    """Return the bound form of an object whose class is declared by ``@projector`` or ``@reactor``.

    Raises:
        BadDeclaration: the object is no such thing, or its class cannot be used as written; the
            message names the class and, where there is one, method and parameter.

    """
    if isinstance(subscriber, type):
        raise BadDeclaration(f"{subscriber.__qualname__} is a class: hand in an object, {subscriber.__qualname__}()")
    declared = declared_on(type(subscriber))
    if declared is None:
        raise BadDeclaration(
            f"{type(subscriber).__qualname__} is no subscriber: mark its class with "
            '@projector("a_name") or @reactor("a_name")'
        )
    return _Binder(subscriber, declared).bind()


class _Binder:
    """Binds one subscriber; holds what all steps look at."""

    def __init__(self, subscriber: object, declared: Declared) -> None:
        self.subscriber = subscriber
        self.declared = declared
        self.owner = type(subscriber)
        self.methods = marked_methods(self.owner)

    def bind(self) -> BoundSubscriber:
        """Return the bound subscriber, everything checked."""
        handlers = self._of(Role.ON)
        batches = self._of(Role.BATCH)
        self._check(handlers, batches)
        on = [(method, self._handler(method)) for method in handlers]
        folds = [(method, self._handler(method)) for method in batches]
        every = tuple(bound for method, bound in on if method.every)
        return BoundSubscriber(
            subscriber=self.subscriber,
            declared=self.declared,
            wanted=self._wanted(handlers + batches),
            has_batch=bool(batches),
            setup_hook=self._hook(Role.SETUP),
            teardown_hook=self._hook(Role.TEARDOWN),
            on_failed_hook=self._hook(Role.ON_FAILED),
            _handlers={name: _called_for(name, on) for method in handlers for name in method.names},
            _for_every=every,
            _batches={name: bound for method, bound in folds for name in method.names},
            _batch_for_every=next((bound for method, bound in folds if method.every), None),
        )

    def _of(self, role: Role) -> list[Method]:
        return [method for method in self.methods if method.role is role]

    def _wanted(self, methods: list[Method]) -> EventFilter:
        every = any(method.every for method in methods)
        types = None if every else tuple(sorted({name for method in methods for name in method.names}))
        return EventFilter(types=types, streams=self.declared.streams, tags=self.declared.tags)

    def _check(self, handlers: list[Method], batches: list[Method]) -> None:
        where = self.owner.__qualname__
        if not handlers and not batches:
            raise BadDeclaration(f"{where} handles nothing: mark a method with @on(...) or @batch(...)")
        for number, fold in enumerate(batches):
            for other in handlers + batches[number + 1 :]:
                shared = events_of_both(fold, other)
                if shared:
                    raise BadDeclaration(
                        f"{where}: {shared} would go to {fold.name} (@batch) and to {other.name} ({other.role}); "
                        "in one class a type is handled by @on methods or by one @batch method"
                    )
        for role in (Role.SETUP, Role.TEARDOWN, Role.ON_FAILED):
            hooks = self._of(role)
            if len(hooks) > 1:
                raise BadDeclaration(
                    f"{where}: {' and '.join(hook.name for hook in hooks)} are marked {role}: one can be"
                )
        if batches and self._of(Role.ON_FAILED):
            raise BadDeclaration(
                f"{where}: @on_failed is asked about one event, @batch handles many: use one of them in a class"
            )

    def _hook(self, role: Role) -> BoundHandler | None:
        return next((self._handler(method) for method in self._of(role)), None)

    def _handler(self, method: Method) -> BoundHandler:
        function = getattr(self.subscriber, method.name)
        where = f"{self.owner.__qualname__}.{method.name}"
        if not callable(function):
            raise BadDeclaration(f"{where} is marked {method.role} but cannot be called")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise BadDeclaration(f"{where} holds a yield, so a call would run nothing of it: return instead")
        plan = plan_call(function, self.owner, self._offer(method, where))
        is_async = any(inspect.iscoroutinefunction(layer) for layer in layers(function))
        return BoundHandler(
            name=where,
            is_async=is_async,
            needs_connection=Filling.CONNECTION in plan.takes,
            needs_context=Filling.CONTEXT in plan.takes,
            call=plan.call if is_async else _refusing_awaitables(where, plan.call),
            per_key=method.per_key,
        )

    def _offer(self, method: Method, where: str) -> Offer:
        common = (Filling.KEY, Filling.CONNECTION, Filling.CONTEXT)
        fillings: tuple[Filling, ...] = (Filling.CONNECTION,)
        hints: Mapping[Filling, str] = _NO_HINTS
        types, every = method.types, method.every
        match method.role:
            case Role.ON:
                fillings = (Filling.EVENT, *common)
                hints = {Filling.EVENTS: "a list of events goes to @batch methods"}
            case Role.BATCH:
                single_key = method.per_key or self.declared.partition_by is None
                fillings = (Filling.EVENTS, *(common if single_key else common[1:]))
                hints = {
                    Filling.EVENT: "a single event goes to @on methods",
                    Filling.KEY: "a batch spans many keys; take event.key, or write @batch(..., per_key=True)",
                }
            case Role.ON_FAILED:
                fillings = (Filling.EVENT, Filling.ERROR, *common)
                types = merged_types(each for other in self._of(Role.ON) for each in other.types)
                every = any(other.every for other in self._of(Role.ON))
        return Offer(where, method.role, fillings, types, every, method.role is Role.ON_FAILED, hints)


def _called_for(event_type: str, bound: list[tuple[Method, BoundHandler]]) -> tuple[BoundHandler, ...]:
    typed = [handler for method, handler in bound if event_type in method.names]
    rest = [handler for method, handler in bound if method.every and event_type not in method.names]
    return (*typed, *rest)


def _refusing_awaitables(where: str, call: Call) -> Call:
    """Return ``call`` with a guard: what a plain ``def`` returns is not awaited, so it must not need to be."""

    def checked(values: HandlerValues) -> Any:
        result = call(values)
        if result is not None and inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise BadDeclaration(f"{where} is a plain def but returned an awaitable, so nothing ran: make it async def")
        return result

    return checked
