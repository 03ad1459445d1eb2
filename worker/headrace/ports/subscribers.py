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


class StopHere(Exception):
    """Raised by ``Context.stop()``: this event is not handled and its key stays before it."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler may know of its call."""

    subscription: str
    key: PartitionKey
    replaying: bool = False
    attempt: int = 0

    def stop(self) -> NoReturn:
        """Leave this event unhandled; its key stays before it and the run goes on elsewhere.

        Raises:
            StopHere: always; let it pass.

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
