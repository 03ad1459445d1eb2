"""The partitioners: which events of a subscription must stay in order.

A built-in one is a frozen value that also describes itself as a :class:`PartitionerSpec`, so that
the store can make the same key inside PostgreSQL without fetching an event. Python and SQL agree
byte for byte; a conformance test holds them together. A key is checked here and nowhere else.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from headrace.domain.errors import BadDeclaration, KeyNotMade
from headrace.domain.event import Event
from headrace.domain.ids import MAX_KEY_BYTES, PartitionKey
from headrace.partitioning.hashing import bucket_of, text_digest

MAX_BUCKETS = 1_000_000
"""Most buckets: far below 2^31, up to which SQL and Python make the same bucket, and far above use."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_SHOWN_CHARACTERS = 40
_SHOWN_MESSAGE = 200


class PartitionerKind(StrEnum):
    """The built-in ways to make a key."""

    STREAM = "stream"
    TAG = "tag"
    BUCKET = "bucket"
    HASHED = "hashed"


@dataclass(frozen=True, slots=True)
class PartitionerSpec:
    """A built-in partitioner as plain data, for the store to push down.

    ``prefix`` is set for TAG, ``buckets`` for BUCKET, ``of`` (the inner one) for BUCKET and HASHED.
    """

    kind: PartitionerKind
    prefix: str | None = None
    buckets: int | None = None
    of: "PartitionerSpec | None" = None


@runtime_checkable
class Partitioner(Protocol):
    """Anything that makes a key of an event, always the same key of the same event."""

    def key(self, event: Event[Any]) -> str | None:
        """Return the key; None when the event is not for this subscriber."""
        ...


@dataclass(frozen=True, slots=True)
class Stream:
    """One partition per stream: the key is the name of the stream."""

    def key(self, event: Event[Any]) -> str | None:
        """Return the event's stream."""
        return event.stream

    def spec(self) -> PartitionerSpec:
        """Describe this partitioner for the store."""
        return PartitionerSpec(PartitionerKind.STREAM)


@dataclass(frozen=True, slots=True)
class Tag:
    """One partition per tag value: ``Tag("course")`` reads the tags ``course:…`` and no others.

    The key is what follows ``prefix:`` (``7`` for the tag ``course:7``), since the prefix says
    nothing that the subscriber does not know. Of several such tags the first in sorted order counts
    (by code point, which is PostgreSQL's ``collate "C"``). An event without one is not for this
    subscriber. The prefix is exact: ``course`` does not match ``courseware:7``; the empty prefix
    matches nothing.
    """

    prefix: str

    def __post_init__(self) -> None:
        if not _is_storable(self.prefix):
            raise BadDeclaration(f"Tag({self.prefix!r}): the prefix must be text that a tag can hold")

    def key(self, event: Event[Any]) -> str | None:
        """Return what follows the prefix in the first matching tag; None without one."""
        if not self.prefix:
            return None
        start = self.prefix + ":"
        # A tag may be NULL in somebody else's table, hence the test of the tag itself.
        found = min((tag for tag in event.tags if tag and tag.startswith(start)), default=None)
        return None if found is None else found[len(start) :]

    def spec(self) -> PartitionerSpec:
        """Describe this partitioner for the store."""
        return PartitionerSpec(PartitionerKind.TAG, prefix=self.prefix)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A fixed number ``n`` of partitions: the key is the decimal number, 0 to n - 1, of the inner key's bucket.

    See ``headrace.partitioning.hashing.bucket_of`` for the hash.
    """

    of: Partitioner
    n: int

    def __post_init__(self) -> None:
        _check_inner(self.of, f"Bucket(…, {self.n!r})")
        if type(self.n) is not int or not 1 <= self.n <= MAX_BUCKETS:
            raise BadDeclaration(f"Bucket(…, {self.n!r}): the number of buckets must be 1 to {MAX_BUCKETS}")

    def key(self, event: Event[Any]) -> str | None:
        """Return the bucket of the inner key; None when the inner partitioner says so.

        Raises:
            KeyNotMade: the inner key is not text, or has no UTF-8 form.

        """
        inner = self.of.key(event)
        return None if inner is None else str(bucket_of(inner, self.n))

    def spec(self) -> PartitionerSpec | None:
        """Describe this partitioner for the store; None when the inner one is written in Python."""
        of = spec_of(self.of)
        return None if of is None else PartitionerSpec(PartitionerKind.BUCKET, buckets=self.n, of=of)


@dataclass(frozen=True, slots=True)
class Hashed:
    """One partition per inner key of any length: the key is the inner key's SHA-256 in hex.

    See ``headrace.partitioning.hashing.text_digest``.
    """

    of: Partitioner

    def __post_init__(self) -> None:
        _check_inner(self.of, "Hashed(…)")

    def key(self, event: Event[Any]) -> str | None:
        """Return the digest of the inner key; None when the inner partitioner says so.

        Raises:
            KeyNotMade: the inner key is not text, or has no UTF-8 form.

        """
        inner = self.of.key(event)
        return None if inner is None else text_digest(inner)

    def spec(self) -> PartitionerSpec | None:
        """Describe this partitioner for the store; None when the inner one is written in Python."""
        of = spec_of(self.of)
        return None if of is None else PartitionerSpec(PartitionerKind.HASHED, of=of)


_BUILT_IN = (Stream, Tag, Bucket, Hashed)


def spec_of(partitioner: Partitioner) -> PartitionerSpec | None:
    """Return what the store can push down; None when the key must be made in Python.

    Only the built-in classes themselves count: a subclass may make another key than it inherits.
    """
    if type(partitioner) not in _BUILT_IN:
        return None
    spec: PartitionerSpec | None = partitioner.spec()  # type: ignore[attr-defined]
    return spec


def describe(partitioner: Partitioner | None) -> str:
    """Return one line that names a partitioner: ``Bucket(Tag('course'), 64)``; ``''`` for none.

    It is stored with the subscription and read by people, never parsed.
    """
    if partitioner is None:
        return ""
    if type(partitioner) not in _BUILT_IN:
        return f"{type(partitioner).__module__}.{type(partitioner).__qualname__}"
    match partitioner:
        case Tag(prefix=prefix):
            return f"Tag({prefix!r})"
        case Bucket(of=of, n=n):
            return f"Bucket({describe(of)}, {n})"
        case Hashed(of=of):
            return f"Hashed({describe(of)})"
    return "Stream()"


def checked_key(key: str) -> PartitionKey:
    """Return ``key`` when it can be stored: text, at most 1,000 UTF-8 bytes; the empty key is one.

    Raises:
        KeyNotMade: it is not text, holds NUL or a lone surrogate, or is too long; the message names
            the fix.

    """
    if not isinstance(key, str):
        raise KeyNotMade(f"a key must be text, the partitioner returned {type(key).__name__}: return str(...) or None")
    if not _is_storable(key):
        raise KeyNotMade(
            f"the key {_shortened(key)} holds NUL or a lone surrogate, which PostgreSQL cannot store as text: "
            "let the partitioner replace it"
        )
    size = len(key.encode())
    if size > MAX_KEY_BYTES:
        raise KeyNotMade(
            f"the key {_shortened(key)} has {size:,} UTF-8 bytes, more than {MAX_KEY_BYTES:,}: "
            "wrap the partitioner, Hashed(...), which takes any length"
        )
    return PartitionKey(key)


def key_of(partitioner: Partitioner, event: Event[Any]) -> PartitionKey | None:
    """Return the checked key of an event; None when the event is not for this subscriber.

    Raises:
        KeyNotMade: the partitioner raised, or made a key that cannot be stored; the message names
            position, type and fix.

    """
    place = f"no partition key for the event at position {event.position} of type {event.type!r}"
    try:
        key = partitioner.key(event)
        return None if key is None else checked_key(key)
    except KeyNotMade as error:
        raise KeyNotMade(f"{place}: {error}") from error
    except Exception as error:
        raise KeyNotMade(
            f"{place}: {describe(partitioner)} raised {_named(error)}; let its key() take this event, "
            "or return None for events that are not for this subscriber"
        ) from error


def _is_storable(text: object) -> bool:
    return isinstance(text, str) and not _UNSTORABLE.search(text)


def _shortened(key: str) -> str:
    shown = ascii(key[:_SHOWN_CHARACTERS])
    return (
        shown if len(shown) <= _SHOWN_CHARACTERS and len(key) <= _SHOWN_CHARACTERS else shown[:_SHOWN_CHARACTERS] + "…'"
    )


def _named(error: Exception) -> str:
    try:
        message = str(error)[:_SHOWN_MESSAGE]
    except Exception:  # noqa: BLE001 - an error that cannot be printed must not hide the event it is about
        message = ""
    return f"{type(error).__qualname__}: {message}" if message else type(error).__qualname__


def _check_inner(of: object, what: str) -> None:
    if isinstance(of, type) or not isinstance(of, Partitioner):
        raise BadDeclaration(f"{what}: the inner partitioner must be an object with key(event), such as Stream()")
