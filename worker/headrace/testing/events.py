"""Builders of events for tests: say what matters, the rest is filled in."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

from headrace.domain.event import Event, NewEvent
from headrace.domain.ids import PartitionKey, Position
from headrace.testing.appending import EVENT_IDS
from headrace.testing.clock import EPOCH


def recorded(
    type: str = "Happened",
    data: Any = None,
    *,
    stream: str = "stream-1",
    position: int = 1,
    version: int = 1,
    tags: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    event_id: UUID | None = None,
    at: datetime = EPOCH,
    key: str | None = None,
    subscription: str = "",
) -> Event[Any]:
    """Return an event as the store would give it to a handler; ids depend on the position alone."""
    return Event(
        position=Position(position),
        stream=stream,
        version=version,
        type=type,
        raw_data=json.dumps({} if data is None else data),
        raw_metadata=json.dumps(dict(metadata or {})),
        tags=tags,
        event_id=event_id or uuid5(EVENT_IDS, str(position)),
        recorded_at=at,
        appended_at=at,
        commit_id=position,
        key=PartitionKey(stream if key is None else key),
        subscription=subscription,
    )


def new(type: str = "Happened", data: Any = None, **fields: Any) -> NewEvent:
    """Return an event to append."""
    return NewEvent(type, {} if data is None else data, **fields)


def stream_of(stream: str, *types: str, tags: Sequence[str] = ()) -> list[tuple[str, NewEvent]]:
    """Return one event of each type for one stream, ready for ``append``."""
    return [(stream, new(type, {"n": n}, tags=tags)) for n, type in enumerate(types, start=1)]
