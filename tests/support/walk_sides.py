"""What a random walk walks on: its subscriptions, the groups it has claimed, one side for each implementation.

And what commands are: each is drawn once, with its arguments, and then given to every side.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.domain.errors import HeadraceError, LeaseLost, TransactionAborted, UsageError
from headrace.domain.event import EVERYTHING, EventFilter
from headrace.domain.subscription import Subscription
from headrace.partitioning.keys import Partitioner, Stream, Tag
from headrace.ports.routing import Unrouted
from headrace.ports.work import ClaimGroup, Loaded
from support.worlds import World, by_key

UNIT = 10_000.0
"""Seconds of one step of time: much longer than any walk takes, so that real time does not matter."""
DELAYS = [1.3 * UNIT, 2.3 * UNIT, 5.3 * UNIT]
TTL = 3.3 * UNIT
IDLE = 2.6 * UNIT

STREAMS = ["a", "b", "c", "d", "é", ""]
TAGS = [[], ["k:1"], ["k:2", "k:1"], ["k:3", "other:1"], ["other:1"]]
WORKERS = [1, 2]
REMEMBERED = 8
"""Groups that are tried again, also when their lease is gone long since."""

Command = Callable[["Side"], Awaitable[Any]]
Made = tuple[str, Command]
"""A command that was drawn, with its description."""
Maker = Callable[[], Made | None]
"""Draws a command; None when nothing is there for it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A subscription of the walk."""

    name: str
    partition_by: Partitioner | None
    wanted: EventFilter = EVERYTHING


KINDS = [
    Kind("orders", Stream()),
    Kind("courses", Tag("k"), EventFilter(types=("A", "C"))),
    Kind("log", None, EventFilter(types=("A", "B"))),
    Kind("late", Stream(), EventFilter(types=("B",))),
]
PARTITIONED = [kind for kind in KINDS if kind.partition_by is not None]


@dataclass(slots=True)
class Held:
    """A group that was claimed, and what was loaded of it last."""

    kind: Kind
    worker: int
    group: ClaimGroup
    loaded: Loaded = field(default_factory=Loaded)

    def loaded_keys(self) -> list[str]:
        """Return the loaded keys."""
        return sorted(by_key(self.loaded))


@dataclass(slots=True)
class Side:
    """One implementation on its walk."""

    world: World
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    groups: dict[int, Held] = field(default_factory=dict)
    reads: dict[str, Unrouted] = field(default_factory=dict)

    async def keys_of(self, held: Held) -> list[tuple[str, int, int, int]]:
        """Return a group by keys, with backlog, attempts and take-overs."""
        partitions = (await self.world.image()).partitions
        return sorted(
            (str(partitions[p.part].key), p.backlog, p.attempts, p.takeovers)
            for p in held.group.parts
            if p.part in partitions
        )


class Undo(Exception):
    """Raised by the walk inside a transaction."""


class Commands:
    """Draws commands: chance is the walk's own, and what exists is asked of the first side.

    All others must agree with it anyway.
    """

    def __init__(self, chance: random.Random, first: Side) -> None:
        self._chance = chance
        self._first = first

    def _kind(self, kinds: Sequence[Kind] = KINDS) -> Kind | None:
        there = [kind for kind in kinds if kind.name in self._first.subscriptions]
        return self._chance.choice(there) if there else None

    def _held(self) -> tuple[int, Held] | None:
        groups = self._first.groups
        if not groups:
            return None
        # Mostly one of the last, sometimes one that may have lost its lease.
        leases = list(groups)[-REMEMBERED:]
        lease = self._chance.choice(leases[-3:] if self._chance.random() < 0.8 else leases)
        return lease, groups[lease]


def error_name(error: HeadraceError) -> str:
    """Return the class of an error, or the SQLSTATE for one that says that the tables are at odds."""
    if isinstance(error, LeaseLost | UsageError | TransactionAborted):
        return type(error).__name__
    return str(getattr(error, "sqlstate", None) or getattr(error.__cause__, "sqlstate", None) or type(error).__name__)
