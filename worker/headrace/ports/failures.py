"""The failures of keys, as commands see them."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from headrace.domain.ids import Address, PartitionKey, Position
from headrace.ports.work import FailureState


@dataclass(frozen=True, slots=True)
class Failure:
    """One failing key. ``waiting`` events of it lie in its inbox, the failing one included."""

    subscription: str
    key: PartitionKey
    position: Position
    event_type: str | None
    stream: str | None
    state: FailureState
    attempts: int
    failure_class: str
    error_type: str
    error: str
    first_failed_at: datetime
    failed_at: datetime
    next_retry_at: datetime | None
    waiting: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a resume did: keys made due, keys being tried at that moment."""

    resumed: int
    leased: int


class Failures(Protocol):
    """The port of ``failures list / show / resume / skip``."""

    def list(
        self, names: Sequence[str] | None = None, states: Sequence[FailureState] | None = None
    ) -> AsyncIterator[Failure]:
        """Yield failures by subscription and position, in bounded memory."""
        ...

    async def show(self, address: Address) -> Failure:
        """Return the failure of one key.

        Raises:
            NotFound: that key has no failure.

        """
        ...

    async def resume(self, names: Sequence[str] | None, key: str | None, who: str, why: str) -> Resumed:
        """Make failing keys due now with a fresh budget, 1,000 keys a transaction; audited."""
        ...

    async def skip(self, address: Address, position: Position | None, who: str, why: str) -> Position:
        """Drop the failing event of one key and make the key due; returns the skipped position.

        Raises:
            NotFound: that key has no failure.
            NotAllowed: the key is being tried now, or ``position`` is not the failing one.

        """
        ...
