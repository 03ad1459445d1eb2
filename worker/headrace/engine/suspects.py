"""Keys that owners died with: tried one at a time in a process, and on record before they are touched.

What kills a worker leaves nothing behind but its leases. From the second death on a key is a suspect, and only
what happened while it was in hand counts against it: its owner says so before it loads the key, because the load
may be what kills; it does not take it ahead of its turn; and no two lanes of a process try one at a time, or the
harmless one would be blamed for the other.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from headrace.domain.errors import LeaseLost, TransactionAborted, Unavailable
from headrace.domain.ids import LeaseId, PartitionId
from headrace.engine.judging import TAKEOVER_LIMIT
from headrace.engine.tracked import Shared
from headrace.ports.work import ALONE_FROM, ClaimGroup

TURN_SECONDS = 0.1
"""Pause of a lane while another one of its process tries a suspect."""


class Suspects:
    """One lane's part in it."""

    def __init__(self, shared: Shared, release: Callable[[LeaseId], Awaitable[None]]) -> None:
        """Take what all lanes of the process share, and how this one gives a lease back."""
        self._shared = shared
        self._release = release
        self._mine: tuple[LeaseId, PartitionId] | None = None

    async def begins(self, group: ClaimGroup, *, ahead: bool) -> bool:
        """Go on record with a claimed suspect; False when it is not its turn and the claim was given back.

        Raises:
            LeaseLost: somebody else has taken the lease over.

        """
        suspects = [p for p in group.parts if ALONE_FROM <= p.takeovers < TAKEOVER_LIMIT]
        if not suspects:
            return True
        if ahead or self._shared.trying:
            await self._release(group.lease)
            if not ahead:
                await self._shared.ports.clock.sleep(TURN_SECONDS)
            return False
        self._shared.trying = True
        # A claim that holds a suspect holds nothing else.
        self._mine = (group.lease, suspects[0].part)
        try:
            await self._shared.ports.work.suspect(*self._mine)
        except BaseException:
            self.done(group.lease)
            raise
        return True

    async def absolve(self) -> None:
        """Take the record back, as far as the database answers: this worker lives, whatever else went wrong."""
        if self._mine is not None:
            with suppress(Unavailable, TransactionAborted, LeaseLost):
                await self._shared.ports.work.absolve(*self._mine)

    def done(self, lease: LeaseId) -> None:
        """Let the next suspect of this process have its turn, if that lease was one's."""
        if self._mine is not None and self._mine[0] == lease:
            self._mine = None
            self._shared.trying = False
