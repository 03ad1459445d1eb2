"""What the engine needs of a bound subscriber, and what it hands to handlers.

The engine never sees user classes or annotations: ``subscribers`` binds them once and offers this.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from headrace.domain.event import Event, EventFilter
from headrace.domain.ids import PartitionKey
from headrace.domain.subscription import Declaration, Kind
from headrace.failures.backoff import RetryPolicy
from headrace.partitioning.keys import Partitioner
from headrace.ports.connection import Connection


class StopHere(BaseException):  # not an Exception: a handler's `except Exception` must not swallow it
    """Raised by ``Context.stop()``; the engine takes it, nobody else should."""


@dataclass(frozen=True, slots=True)
class Context:
    """The circumstances of one call.

    ``key`` is '' for an unpartitioned subscriber and None in a batch over several keys. ``attempt``
    counts the tries of this event, 1 the first. ``replaying`` tells that it has been handled before
    a reset.
    """

    subscription: str
    key: PartitionKey | None = None
    replaying: bool = False
    attempt: int = 1

    def stop(self) -> NoReturn:
        """End here without a failure: this event is not handled, its key stays before it, others go on.

        In a projector what this handler has written for the event is rolled back.

        Raises:
            StopHere: always.

        """
        raise StopHere


@dataclass(slots=True)
class HandlerValues:
    """What the parameters of one handler call are filled from."""

    event: Event[Any] | None = None
    events: Sequence[Event[Any]] = ()
    key: PartitionKey | None = None
    connection: Connection | None = None
    context: Context | None = None
    error: BaseException | None = None


class BoundHandler(Protocol):
    """One method of a subscriber, ready to be called."""

    @property
    def name(self) -> str:
        """Class and method, for messages."""
        ...

    @property
    def is_async(self) -> bool:
        """Whether ``call`` returns an awaitable; otherwise it blocks and belongs into a thread."""
        ...

    @property
    def needs_connection(self) -> bool:
        """Whether it asks for a connection."""
        ...

    @property
    def needs_context(self) -> bool:
        """Whether it asks for a context."""
        ...

    @property
    def per_key(self) -> bool:
        """For batch handlers: called once per key rather than once per claim group."""
        ...

    def call(self, values: HandlerValues) -> Any:
        """Call the method with the parameters it asks for."""
        ...


class BoundSubscriber(Protocol):
    """A subscriber whose handlers are bound and checked."""

    @property
    def name(self) -> str:
        """The subscription's name."""
        ...

    @property
    def kind(self) -> Kind:
        """Projector or reactor."""
        ...

    @property
    def group(self) -> str:
        """The group that commands may select."""
        ...

    @property
    def partitioner(self) -> Partitioner | None:
        """How keys are made; None for an unpartitioned subscription."""
        ...

    @property
    def wanted(self) -> EventFilter:
        """The events that must be routed."""
        ...

    @property
    def retry(self) -> RetryPolicy:
        """How failing keys are tried again."""
        ...

    @property
    def concurrency(self) -> int:
        """How many keys of a group a reactor handles at once."""
        ...

    @property
    def timeout(self) -> float | None:
        """Seconds that one handler call may take; None for the worker's default."""
        ...

    @property
    def limit(self) -> int:
        """Most events of one partition in one load."""
        ...

    @property
    def partitions_per_claim(self) -> int | None:
        """A fixed number of partitions per claim, instead of the adaptive one."""
        ...

    @property
    def remove_idle_after(self) -> float | None:
        """Seconds after which an idle partition is removed; None keeps it."""
        ...

    @property
    def setup_hook(self) -> BoundHandler | None:
        """The hook that prepares the read model."""
        ...

    @property
    def on_failed_hook(self) -> BoundHandler | None:
        """The hook that may swallow an event when its budget is spent."""
        ...

    def declaration(self, app: str) -> Declaration:
        """What is stored of it."""
        ...

    def handlers_for(self, event_type: str) -> Sequence[BoundHandler]:
        """The handlers of one event type, in calling order."""
        ...

    def batch_for(self, event_type: str) -> BoundHandler | None:
        """The batch handler of one event type."""
        ...


Subscribers = Mapping[str, BoundSubscriber]
