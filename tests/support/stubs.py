"""Bound subscribers without classes or annotations, for tests of the engine alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.domain.event import EVERYTHING, Event, EventFilter
from headrace.domain.ids import PartitionId, PartitionKey, Position
from headrace.domain.subscription import Declaration, Kind, Start, StartFrom
from headrace.failures.backoff import RetryPolicy
from headrace.partitioning.keys import Partitioner, Stream
from headrace.ports.subscribers import HandlerValues
from headrace.ports.work import LoadedPartition


@dataclass(frozen=True, slots=True)
class StubHandler:
    """A handler that is a plain function of its values."""

    call: Callable[[HandlerValues], Any]
    name: str = "Stub.handle"
    is_async: bool = True
    per_key: bool = False
    needs_connection: bool = False
    needs_context: bool = False


@dataclass(slots=True)
class StubSubscriber:
    """A bound subscriber; `on` and `batch` map event types to handlers, `''` stands for every other type."""

    name: str = "stub"
    kind: Kind = Kind.PROJECTOR
    group: str = "stubs"
    partitioner: Partitioner | None = field(default_factory=Stream)
    wanted: EventFilter = EVERYTHING
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    concurrency: int = 4
    timeout: float | None = None
    limit: int = 1000
    partitions_per_claim: int | None = None
    remove_idle_after: float | None = None
    setup_hook: StubHandler | None = None
    on_failed_hook: StubHandler | None = None
    start: Start = StartFrom.BEGINNING
    on: Mapping[str, StubHandler] = field(default_factory=dict)
    batch: Mapping[str, StubHandler] = field(default_factory=dict)

    def declaration(self, app: str) -> Declaration:
        """What is stored of it."""
        return Declaration(self.name, app, self.kind, self.group, self.partitioner is not None, self.wanted, self.start)

    def handlers_for(self, event_type: str) -> tuple[StubHandler, ...]:
        """The handlers of one type."""
        found = self.on.get(event_type) or self.on.get("")
        return (found,) if found else ()

    def batch_for(self, event_type: str) -> StubHandler | None:
        """The batch handler of one type."""
        return self.batch.get(event_type) or self.batch.get("")


def event(position: int, type: str = "t", stream: str = "s") -> Event[Any]:
    """Make a recorded event."""
    return Event(position=Position(position), stream=stream, version=position, type=type, raw_data="{}")


def loaded(
    part: int, *events: Event[Any], position: int = 0, attempts: int = 0, vanished: tuple[int, ...] = (), to: int = 0
) -> LoadedPartition:
    """Make a loaded partition whose key is its number."""
    return LoadedPartition(
        PartitionId(part),
        PartitionKey(str(part)),
        Position(position),
        attempts,
        0,
        events,
        tuple(Position(v) for v in vanished),
        Position(to),
    )
