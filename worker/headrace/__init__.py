"""Headrace: subscriptions on event logs in PostgreSQL, worked on by any number of workers.

The public names. A subscriber is a class with the decorators from here, an :class:`App` holds the
subscribers of one code base, an :class:`EventStore` appends.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# Whoever imports any room passes here first, a command that shows a status as well: a public name is loaded when it is
# asked for. Checkers read imports, so that they still see a name that is not there.
if TYPE_CHECKING:
    from headrace.domain.errors import Busy, Conflict, HeadraceError, LeaseLost, NotFinished, Unavailable, Unrecoverable
    from headrace.domain.event import AppendCondition, Appended, Event, EventFilter, NewEvent
    from headrace.domain.ids import PartitionKey, Position
    from headrace.domain.mapping import TableMapping
    from headrace.failures.backoff import RetryPolicy
    from headrace.partitioning.keys import Bucket, Hashed, Partitioner, Stream, Tag
    from headrace.ports.connection import Connection
    from headrace.runtime.app import App
    from headrace.runtime.event_store import EventStore
    from headrace.subscribers.context import Context
    from headrace.subscribers.declare import batch, on, on_failed, projector, reactor, setup, teardown
else:
    _HOMES = {
        "domain.errors": "Busy Conflict HeadraceError LeaseLost NotFinished Unavailable Unrecoverable",
        "domain.event": "AppendCondition Appended Event EventFilter NewEvent",
        "domain.ids": "PartitionKey Position",
        "domain.mapping": "TableMapping",
        "failures.backoff": "RetryPolicy",
        "partitioning.keys": "Bucket Hashed Partitioner Stream Tag",
        "ports.connection": "Connection",
        "runtime.app": "App",
        "runtime.event_store": "EventStore",
        "subscribers.context": "Context",
        "subscribers.declare": "batch on on_failed projector reactor setup teardown",
    }

    def __getattr__(name: str) -> object:
        for home, names in _HOMES.items():
            if name in names.split():
                # Kept, so that the next look is a plain one.
                globals()[name] = found = getattr(import_module(f"headrace.{home}"), name)
                return found
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "App",
    "AppendCondition",
    "Appended",
    "Bucket",
    "Busy",
    "Conflict",
    "Connection",
    "Context",
    "Event",
    "EventFilter",
    "EventStore",
    "Hashed",
    "HeadraceError",
    "LeaseLost",
    "NewEvent",
    "NotFinished",
    "PartitionKey",
    "Partitioner",
    "Position",
    "RetryPolicy",
    "Stream",
    "TableMapping",
    "Tag",
    "Unavailable",
    "Unrecoverable",
    "batch",
    "on",
    "on_failed",
    "projector",
    "reactor",
    "setup",
    "teardown",
]
