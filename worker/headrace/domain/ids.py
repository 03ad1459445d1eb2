"""Names and numbers that must not be mixed up, each as its own type.

A position, a partition and a lease are all whole numbers in PostgreSQL. Distinct types keep one
from being handed in where another is meant; addresses are parsed here and nowhere else.
"""

import re
from dataclasses import dataclass
from typing import NewType, Self

from headrace.domain.errors import BadName

Position = NewType("Position", int)
"""Place of an event in the global order; 0 is before the first event."""

Run = NewType("Run", int)
"""Incarnation of a subscription: a reset gives a new one, and partitions belong to it."""

PartitionId = NewType("PartitionId", int)
"""Surrogate id of one partition (one key of one run)."""

LeaseId = NewType("LeaseId", int)
"""Random 63-bit id of a lease; the row that carries it is the fence."""

START = Position(0)
"""Before the first event."""

MAX_KEY_BYTES = 1000
"""Longest partition key in UTF-8 bytes; longer ones are hashed by the user's choice (``Hashed``)."""

MAX_NAME_LENGTH = 250

_NAME = re.compile(r"[^\s#\x00-\x1f][^#\x00-\x1f]*(?<!\s)")


class PartitionKey(str):
    """The key whose events must stay in order; ``''`` for an unpartitioned subscription."""

    __slots__ = ()


def checked_name(name: object, what: str = "subscriber") -> str:
    """Return ``name`` when it may name a subscription.

    Raises:
        BadName: the name is empty, longer than 250 characters, starts or ends with a blank, or
            holds ``#`` (which separates a name from a key in addresses) or a control character.

    """
    if not isinstance(name, str) or len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise BadName(
            f"{what} name {name!r} is refused: use 1 to {MAX_NAME_LENGTH} characters without '#', control "
            "characters or blanks at the ends ('#' separates a subscriber from a key in addresses)"
        )
    return name


@dataclass(frozen=True, slots=True)
class Address:
    """A subscription, or one partition of it when ``key`` is given."""

    name: str
    key: PartitionKey | None = None

    @classmethod
    def parse(cls, text: str, key: str | None = None) -> Self:
        """Read ``NAME`` or ``NAME#KEY``; everything after the first ``#`` is the key.

        Raises:
            BadName: the name is not a legal one, or a key is given twice.

        """
        name, separator, rest = text.partition("#")
        if separator and key is not None:
            raise BadName(f"{text!r} names a key already: leave out --key")
        found = rest if separator else key
        return cls(checked_name(name), None if found is None else PartitionKey(found))

    def __str__(self) -> str:
        """Write the address as commands and output show it."""
        return self.name if self.key is None else f"{self.name}#{self.key}"
