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
    """How far a subscription is: routed to, everything handled up to, and what stands in the way.

    ``handled``: every wanted event at or below it is handled (a parked key holds it back).
    ``blocked``: lowest position of a key that will not move by itself soon, with its key.
    """

    position: Position
    handled: Position
    inboxed: int
    leased: bool
    blocked: Position | None = None
    blocked_key: PartitionKey | None = None
    due_later: bool = False


class Catalog(Protocol):
    """The port of subscriptions' own rows."""

    async def declare(self, declarations: Sequence[Declaration]) -> list[Subscription]:
        """Insert what is missing (status new), bring declared facts up to date, return all in order.

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

    def setup_lease(
        self, subscription: Subscription, lease: LeaseId, ttl: float
    ) -> AbstractAsyncContextManager[bool]:
        """Hold the one set-up lease of a subscription; False when somebody else has it."""
        ...

    async def caught_up(self, run: Run) -> Caught:
        """Tell how far a subscription is, in one probe."""
        ...
