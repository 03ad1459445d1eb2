"""Heartbeats: which processes live, what they work on, which horizon they see."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from headrace.domain.ids import Position


@dataclass(frozen=True, slots=True)
class Beat:
    """What a worker says of itself.

    ``every`` is the interval of its beats in seconds; ``declared`` are the digests of its declarations, in the order of
    ``subscriptions``.
    """

    id: UUID
    app: str
    name: str
    version: str
    subscriptions: tuple[str, ...]
    lanes: int
    every: float
    source: str | None = None
    horizon: Position | None = None
    head: Position | None = None
    held_by: str | None = None
    held_since: datetime | None = None
    routing: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Census:
    """Live lanes by subscription name, this worker's included."""

    lanes: Mapping[str, int] = field(default_factory=dict)


class Workers(Protocol):
    """The port of the heartbeat table."""

    async def beat(self, beat: Beat) -> Census:
        """Write the beat and count live lanes (younger than three beats of their own), in one statement."""
        ...

    async def leave(self, worker: UUID) -> None:
        """Remove the worker's row; also rows dead for an hour."""
        ...
