"""The catalog: which subscriptions exist, who owns them, where they stand.

Few rows, written by commands, boot and error handling only, each in a short transaction of its own.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from headrace.domain.ids import LeaseId, PartitionKey, Position, Run
from headrace.domain.subscription import Declaration, ErrorClass, Subscription


@dataclass(frozen=True, slots=True)
class Caught:
    """How far a subscription is, and what is left to do.

    ``position``: routed (unpartitioned: handled) up to here. ``behind``: an event row lies above it,
    at or below the line that was asked for. ``low``: the lowest routed position that is not handled,
    parked keys included; None when the inbox is empty. ``due``, ``leased``, ``backing_off``: whether
    keys are waiting for a lane, in the hands of one, or for their next retry. ``parked``: the lowest
    position of a key that is parked, held or waits for a person, with its key.
    """

    position: Position
    behind: bool
    low: Position | None = None
    due: bool = False
    leased: bool = False
    backing_off: bool = False
    parked: Position | None = None
    parked_key: PartitionKey | None = None

    @property
    def handled(self) -> Position:
        """Every wanted event at or below this position is handled."""
        return self.position if self.low is None else Position(min(self.low - 1, self.position))


class Catalog(Protocol):
    """The port of subscriptions' own rows."""

    async def declare(self, declarations: Sequence[Declaration]) -> list[Subscription]:
        """Insert what is missing (status new), bring declared facts up to date, return all in order.

        A declaration with another digest takes charge when it was first seen after the one in charge. An older one
        takes charge only when no worker declares the one in charge: none that has not signed off, or that was silent
        for three beats while the caller was not (see ``Beat``). Until then nothing of it is stored, and the returned
        ``declared`` is the digest of the other.

        Raises:
            OwnedElsewhere: a subscription of that name belongs to another app; nothing is stored.
            BadDeclaration: a stored subscription is partitioned and the declared one is not, or the reverse.

        """
        ...

    async def find(self, names: Sequence[str] | None = None) -> list[Subscription]:
        """Return the named subscriptions (all when None), by name."""
        ...

    async def start(self, subscription: Subscription, position: Position, boot_target: Position) -> Subscription:
        """End set-up: write cursor (and the one partition of an unpartitioned run), status booting or active.

        Booting when ``boot_target`` lies beyond ``position``. Only from status new; idempotent.
        """
        ...

    async def activate(self, run: Run) -> bool:
        """Move booting to active when everything up to the boot target is handled, or parked; tells if it did."""
        ...

    async def stop_main(self, run: Run, error_class: ErrorClass, reason: str, retry_in: float) -> None:
        """Put a main into error (or count one more try of a standing one); the next try is in ``retry_in`` seconds."""
        ...

    async def begin_retry(self, run: Run, error_class: ErrorClass, force: bool = False) -> bool:
        """Bring a main of that error class back to where it came from when its retry is due (or ``force``)."""
        ...

    def setup_lease(self, subscription: Subscription, lease: LeaseId, ttl: float) -> AbstractAsyncContextManager[bool]:
        """Hold the one set-up lease of a subscription; False when somebody else has it."""
        ...

    async def caught_up(self, run: Run, line: Position, key: PartitionKey | None = None) -> Caught:
        """Tell how far a subscription is with respect to ``line``, in one statement of index probes.

        With ``key`` the answer is about that partition alone (one that does not exist has nothing left).
        The one ready row of an unpartitioned run counts as due only when it is behind.
        """
        ...
