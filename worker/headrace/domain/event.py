"""Events as the engine reads them and as appends take them.

A recorded event is immutable. Its data arrives as JSON text and is decoded at first look, because
routing and skipping need no data and decoding is the dearest part of reading.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from uuid import UUID, uuid5

from headrace.domain.ids import START, PartitionKey, Position

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    # A handler that takes a raw event writes plain `Event`, also under mypy --strict.
    T = TypeVarWithDefault("T", default=Any)
else:
    T = TypeVar("T")

EXECUTION_NAMESPACE = UUID("6f2d0c9e-5d0b-4a58-9a61-6b1f0a4c7e25")
"""Namespace of execution ids; changing it would change every idempotency key in the field."""

SourceDecoder = Callable[[str], Any]
"""Makes data of what a mapped table has sent, by the function that its mapping names."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """How a handler wants its data: made of JSON text, or of the value that a mapped table's own decoder made."""

    of_text: Callable[[str], Any]
    of_value: Callable[[Any], Any]


def _as_it_is(value: Any) -> Any:
    return value


PLAIN = Decoder(json.loads, _as_it_is)
"""Plain JSON values, or whatever the table's own decoder made."""


class Event(Generic[T]):
    """One recorded fact, as handlers get it.

    ``data`` is what the handler's model makes of it, or plain JSON values. ``execution_id`` is the
    same for every try of this event by this subscription: the idempotency key of side effects.
    """

    __slots__ = (
        "_data",
        "_decode",
        "_metadata",
        "_raw_data",
        "_raw_metadata",
        "_source",
        "appended_at",
        "commit_id",
        "event_id",
        "key",
        "position",
        "recorded_at",
        "replaying",
        "stream",
        "subscription",
        "tags",
        "type",
        "version",
    )

    def __init__(
        self,
        *,
        position: Position,
        stream: str,
        version: int,
        type: str,
        raw_data: str,
        raw_metadata: str | None = None,
        tags: Sequence[str] = (),
        event_id: UUID | None = None,
        recorded_at: datetime | None = None,
        appended_at: datetime | None = None,
        commit_id: int | None = None,
        key: PartitionKey | None = None,
        subscription: str = "",
        replaying: bool = False,
        decode: Decoder = PLAIN,
        source: SourceDecoder | None = None,
    ) -> None:
        """Take the columns of the event table; metadata as JSON text, data too unless ``source`` makes it."""
        self.position = position
        self.stream = stream
        self.version = version
        self.type = type
        self._raw_data = raw_data
        self._raw_metadata = raw_metadata
        self.tags = tuple(tags)
        self.event_id = event_id
        self.recorded_at = recorded_at
        self.appended_at = appended_at
        self.commit_id = commit_id
        self.key = key
        self.subscription = subscription
        self.replaying = replaying
        self._decode = decode
        self._source = source
        self._data: T | None = None
        self._metadata: Any = None

    @property
    def raw_data(self) -> str:
        """The data as the JSON text that is stored; of a mapping with ``decode`` its text, or its bytes in base64."""
        return self._raw_data

    @property
    def data(self) -> T:
        """The decoded data.

        Raises:
            ValueError: the stored text does not fit the handler's model, or is not JSON.
            Exception: whatever the ``decode`` of a mapped table raises.

        """
        if self._data is None:
            if self._source is None:
                self._data = self._decode.of_text(self._raw_data)
            else:
                self._data = self._decode.of_value(self._source(self._raw_data))
        return cast("T", self._data)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The decoded metadata; empty when there is none."""
        if self._metadata is None:
            # A mapped table may hold a null.
            self._metadata = (json.loads(self._raw_metadata) if self._raw_metadata else None) or {}
        return cast("Mapping[str, Any]", self._metadata)

    @property
    def execution_id(self) -> UUID:
        """Deterministic id of (subscription, event): version 5 UUID as of RFC 9562, 5.5."""
        # A mapped table may have no event id; stream and version name the event just as well, then the position.
        fact = str(self.event_id or (f"{self.stream}@{self.version}" if self.version else f"#{self.position}"))
        return uuid5(EXECUTION_NAMESPACE, f"{self.subscription}\x1f{fact}")

    def seen_as(self, decode: Decoder) -> "Event[Any]":
        """Return the same event with its data decoded by ``decode``."""
        if self._decode is decode:
            return self
        # Slot by slot: a typed handler pays for this on every event.
        other: Event[Any] = Event.__new__(Event)
        other.position = self.position
        other.stream = self.stream
        other.version = self.version
        other.type = self.type
        other.tags = self.tags
        other.event_id = self.event_id
        other.recorded_at = self.recorded_at
        other.appended_at = self.appended_at
        other.commit_id = self.commit_id
        other.key = self.key
        other.subscription = self.subscription
        other.replaying = self.replaying
        other._raw_data = self._raw_data
        other._raw_metadata = self._raw_metadata
        other._metadata = self._metadata
        other._decode = decode
        other._source = self._source
        other._data = None
        return other

    def __repr__(self) -> str:
        """Name the event without its data, which may be long or secret."""
        return f"<Event {self.position} {self.type!r} {self.stream}@{self.version}>"


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to append; ``event_id`` and times are the database's where they are not given."""

    type: str
    data: Any
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    event_id: UUID | None = None
    recorded_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AppendCondition:
    """Refuse the append when an event with all of ``tags`` (of ``types``, if given) lies after ``after``.

    Put the most specific tag first: appends with a condition that opens with the same tag, and
    appends that write it, wait for each other for a moment.
    """

    tags: Sequence[str]
    after: Position = START
    types: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append stored: lowest and highest position, and the last version of each stream."""

    first: Position
    last: Position
    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events are wanted; ``None`` means all. Several tags: an event must carry every one."""

    types: tuple[str, ...] | None = None
    streams: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None

    def wants(self, event: Event[Any]) -> bool:
        """Tell whether the event passes, by the same rules as the SQL form."""
        return (
            (self.types is None or event.type in self.types)
            and (self.streams is None or event.stream in self.streams)
            and (self.tags is None or set(self.tags) <= set(event.tags))
        )


EVERYTHING = EventFilter()
