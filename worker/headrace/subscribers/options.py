"""What a subscriber's decorator says, checked once.

Every option has a default that works; every value that cannot is refused here with the name of the
option, long before a database could refuse it with a worse message.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict, cast

from headrace.domain.errors import BadDeclaration
from headrace.domain.ids import Position, checked_name
from headrace.domain.subscription import Kind, Start, StartFrom
from headrace.failures.backoff import RetryPolicy
from headrace.partitioning.keys import Partitioner

MOST_PARTITIONS_PER_CLAIM: Final = 1000
MAX_POSITION: Final = 2**63 - 1

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class SubscriberOptions(TypedDict, total=False):
    """The keyword arguments of ``projector`` and ``reactor``.

    - ``partition_by``: what must stay in order; None is the whole log, in global order.
    - ``start``: 'beginning', 'now' or the position after which to start, for a subscription that is new.
    - ``group``: a name to select it by.
    - ``remove_idle_after``: seconds (or a timedelta) after which an idle partition's row goes.
    - ``retry``: what happens to failing keys.
    - ``concurrency``: keys that a reactor handles at once.
    - ``timeout``: seconds (or a timedelta) a handler may take.
    - ``limit``: events per partition and load.
    - ``partitions_per_claim``: pins the size of claims.
    - ``streams``, ``tags``: only events of these streams, only events that carry all of these tags.
    """

    partition_by: Partitioner | None
    start: Literal["beginning", "now"] | int
    group: str | None
    remove_idle_after: float | timedelta | None
    retry: RetryPolicy
    concurrency: int
    timeout: float | timedelta | None
    limit: int
    partitions_per_claim: int | None
    streams: str | Iterable[str] | None
    tags: str | Iterable[str] | None


@dataclass(frozen=True, slots=True)
class Declared:
    """What a decorated class says of itself, checked; times in seconds."""

    name: str
    kind: Kind
    group: str
    start: Start
    partition_by: Partitioner | None = None
    remove_idle_after: float | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    concurrency: int = 16
    timeout: float | None = None
    limit: int = 1000
    partitions_per_claim: int | None = None
    streams: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None


def checked_options(name: str, kind: Kind, start: StartFrom, options: SubscriberOptions) -> Declared:
    """Return the declaration that the options make, with the defaults of its kind.

    Raises:
        BadName: the group cannot be a name.
        BadDeclaration: an unknown option, or a value that cannot be used; the message names it.

    """
    unknown = sorted(set(options) - set(SubscriberOptions.__annotations__))
    if unknown:
        known = ", ".join(SubscriberOptions.__annotations__)
        raise BadDeclaration(f"@{kind}({name!r}): there is no option {', '.join(unknown)}, only {known}")
    given = cast("dict[str, Any]", dict(options))
    check = _Check(f"@{kind}({name!r})")
    group = given.pop("group", None)
    checked: dict[str, Any] = {
        "group": str(kind) if group is None else checked_name(group, "group"),
        "start": check.start(given.pop("start", start)),
    }
    for option, value in given.items():
        checked[option] = check.option(option, value)
    if checked.get("partition_by") is None:
        for option in ("remove_idle_after", "partitions_per_claim"):
            if checked.get(option) is not None:
                raise check.refused(
                    option, given[option], "left out without partition_by, since there is only one partition"
                )
    return Declared(name=name, kind=kind, **checked)


class _Check:
    """Checks of single options; ``where`` opens each message."""

    def __init__(self, where: str) -> None:
        self.where = where

    def option(self, option: str, value: Any) -> Any:
        """Return the value as the declaration holds it."""
        match option:
            case "partition_by":
                return self.partitioner(value)
            case "remove_idle_after" | "timeout":
                return self.seconds(option, value)
            case "concurrency" | "limit":
                return self.count(option, value, None)
            case "partitions_per_claim":
                return None if value is None else self.count(option, value, MOST_PARTITIONS_PER_CLAIM)
            case "streams" | "tags":
                return self.texts(option, value)
        if not isinstance(value, RetryPolicy):
            raise self.refused("retry", value, "a RetryPolicy; RetryPolicy(attempts=0) does not retry")
        return value

    def start(self, value: Any) -> Start:
        """Return where to start."""
        if isinstance(value, str) and value in set(StartFrom):
            return StartFrom(value)
        if type(value) is int and 0 <= value <= MAX_POSITION:
            return Position(value)
        raise self.refused("start", value, "'beginning', 'now' or the position after which to start")

    def partitioner(self, value: Any) -> Partitioner | None:
        """Return the partitioner; a class in place of its object is refused."""
        if value is not None and (isinstance(value, type) or not callable(getattr(value, "key", None))):
            raise self.refused("partition_by", value, "None or an object with key(event), such as Stream()")
        return cast("Partitioner | None", value)

    def seconds(self, option: str, value: Any) -> float | None:
        """Return a time in seconds."""
        if isinstance(value, timedelta):
            value = value.total_seconds()
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and 0 < value < float("inf")):
            raise self.refused(option, value, "a number of seconds above zero, a timedelta or None")
        return None if value is None else float(value)

    def count(self, option: str, value: Any, most: int | None) -> int:
        """Return a number from 1 to ``most``."""
        if type(value) is not int or value < 1 or (most is not None and value > most):
            raise self.refused(option, value, f"a number from 1 to {most}" if most else "a number from 1 on")
        return value

    def texts(self, option: str, value: Any) -> tuple[str, ...] | None:
        """Return texts, sorted; one alone needs no list."""
        if value is None:
            return None
        found = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else ()
        if not found or not all(is_storable(text) for text in found):
            raise self.refused(option, value, "one or more texts; leave it out for all events")
        return tuple(sorted(set(found)))

    def refused(self, option: str, value: Any, wanted: str) -> BadDeclaration:
        """Return the error about a value; ``wanted`` says what it must be."""
        return BadDeclaration(f"{self.where}: {option}={value!r} must be {wanted}")


def is_storable(text: object) -> bool:
    """Tell whether PostgreSQL can hold ``text``: a string without NUL and lone surrogates."""
    return isinstance(text, str) and not _UNSTORABLE.search(text)
