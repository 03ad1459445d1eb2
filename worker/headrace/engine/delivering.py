"""From loaded events to handler calls, in the one order that keeps every key's order.

Events go partition by partition, each in position order. Neighbours that the same batch handler
takes form one run and are handed over together; a run never jumps over an event of its key that
another handler wants.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.domain.event import Event
from headrace.engine.calling import Caller
from headrace.engine.tracked import Tracked
from headrace.ports.connection import Connection
from headrace.ports.subscribers import BoundHandler, HandlerValues
from headrace.ports.work import LoadedPartition


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to call: an event with its handlers, or a run of events with its batch handler."""

    items: tuple[tuple[LoadedPartition, Event[Any]], ...]
    batch: BoundHandler | None = None
    handlers: tuple[BoundHandler, ...] = ()


def steps(tracked: Tracked, partitions: Iterable[LoadedPartition], *, single: bool = False) -> Iterator[Step]:
    """Cut partitions into steps; with ``single`` every batch holds one event, to find the one that fails."""
    run: list[tuple[LoadedPartition, Event[Any]]] = []
    batch: BoundHandler | None = None
    for partition in partitions:
        if batch is not None and batch.per_key:
            yield Step(tuple(run), batch)
            run, batch = [], None
        for event in partition.events:
            wanted = tracked.bound.batch_for(event.type)
            handlers = () if wanted is not None else tuple(tracked.bound.handlers_for(event.type))
            if batch is not None and (single or (wanted is not batch and (wanted is not None or handlers))):
                yield Step(tuple(run), batch)
                run, batch = [], None
            if wanted is not None:
                run.append((partition, event))
                batch = wanted
            elif batch is not None:
                # Nobody wants this event: it rides along, so that it is counted with its run.
                run.append((partition, event))
            else:
                yield Step(((partition, event),), None, handlers)
    if batch is not None:
        yield Step(tuple(run), batch)


async def deliver(caller: Caller, tracked: Tracked, step: Step, connection: Connection | None) -> None:
    """Call the handlers of one step.

    Raises:
        HandlerTimeout, StopHere, or whatever the handler raises.

    """
    partition, event = step.items[0]
    if step.batch is not None:
        events = [e for _, e in step.items if tracked.bound.batch_for(e.type) is step.batch]
        alone = step.items[-1][0] is partition
        values = HandlerValues(
            event, events, partition.key if alone else None, connection, tracked.context(partition, alone=alone)
        )
        await caller.call(step.batch, values, tracked.timeout)
        return
    for handler in step.handlers:
        context = tracked.context(partition) if handler.needs_context else None
        values = HandlerValues(event, (), partition.key, connection, context)
        await caller.call(handler, values, tracked.timeout)


def needs_connection(step: Step) -> bool:
    """Tell whether a handler of the step asks for a connection."""
    if step.batch is not None:
        return step.batch.needs_connection
    return any(handler.needs_connection for handler in step.handlers)
