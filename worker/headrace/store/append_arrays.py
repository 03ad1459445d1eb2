"""New events as the parallel arrays that the append functions take.

Everything that can be refused before the round trip is refused here, by the place of its event.
"""

from collections.abc import Sequence
from typing import Any

from headrace.domain.errors import BadInput, UnstorableEvent
from headrace.domain.event import NewEvent
from headrace.domain.json_text import checked_text, json_text

EventArrays = tuple[
    list[str],
    list[str],
    list[str],
    list[str | None] | None,
    list[str | None] | None,
    list[Any] | None,
    list[Any] | None,
]
"""Streams, types, data, metadata, tags as array literals, event ids, times; None where all are defaults."""

MAX_VERSION = 2**31 - 1


def event_arrays(events: Sequence[tuple[str, NewEvent]]) -> EventArrays:
    """Return the arrays for (stream, event) pairs.

    Raises:
        UnstorableEvent: an event cannot be kept; it carries the event's place.

    """
    streams: list[str] = []
    types: list[str] = []
    data: list[str] = []
    metadata: list[str | None] = []
    tags: list[str | None] = []
    for index, (stream, event) in enumerate(events):
        try:
            streams.append(checked_text(stream, "the stream"))
            types.append(checked_text(event.type, "the type"))
            data.append(json_text(event.data))
            metadata.append(json_text(dict(event.metadata), "metadata") if event.metadata else None)
            tags.append(array_literal(event.tags) if event.tags else None)
            if event.recorded_at is not None and event.recorded_at.tzinfo is None:
                raise BadInput("recorded_at has no time zone: give one, UTC for example")
        except BadInput as error:
            raise UnstorableEvent(index, str(stream), str(event.type), str(error)) from error
    ids = [event.event_id for _, event in events]
    times = [event.recorded_at for _, event in events]
    return streams, types, data, _unless_empty(metadata), _unless_empty(tags), _unless_empty(ids), _unless_empty(times)


def array_literal(tags: Sequence[str]) -> str:
    """Return tags as the text of a PostgreSQL array.

    Raises:
        BadInput: the tags are one text instead of several, or one of them cannot be kept.

    """
    if isinstance(tags, str):
        raise BadInput("tags must be a list of texts, not one text")
    quoted = (checked_text(tag, "a tag").replace("\\", "\\\\").replace('"', '\\"') for tag in tags)
    return "{" + ",".join(f'"{tag}"' for tag in quoted) + "}"


def _unless_empty(values: list[Any]) -> list[Any] | None:
    return values if any(value is not None for value in values) else None
