"""Headrace: subscriptions on event logs in PostgreSQL, worked on by any number of workers.

The public names. A subscriber is a class with the decorators from here, an :class:`App` holds the
subscribers of one code base, an :class:`EventStore` appends.
"""

__version__ = "0.1.0"

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
