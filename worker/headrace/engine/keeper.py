"""The keeper: renews leases, beats the heart, takes over from the dead, gives back what was dropped.

It runs on a thread and connections of its own, so that no handler, however busy, can keep it from
renewing. It vouches for nobody: a lease whose lane has not reported in time is left to expire.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from headrace.domain.engine_events import DatabaseFound, DatabaseLost, TookOver
from headrace.domain.errors import TransactionAborted, Unavailable
from headrace.engine.tracked import Shared
from headrace.ports.clock import Clock
from headrace.ports.observer import Observer
from headrace.ports.work import Work
from headrace.ports.workers import Beat, Workers

OUTAGE_SECONDS = 1.0


@dataclass(slots=True)
class _Duty:
    """Something to do again and again; ``due`` is a monotonic time."""

    every: float
    act: Callable[[], Awaitable[bool]]
    due: float


class Keeper:
    """The clock-driven duties of one process."""

    def __init__(
        self, shared: Shared, work: Work, workers: Workers, clock: Clock, beat: Callable[[], Beat], observer: Observer
    ) -> None:
        """Take ports that belong to the keeper's own loop; ``beat`` makes the next heartbeat."""
        self._shared = shared
        self._work = work
        self._workers = workers
        self._clock = clock
        self._beat = beat
        self._observer = observer
        self._well = True
        self.all_done_once = False
        ttl = shared.options.lease_seconds
        now = clock.monotonic()
        self._duties = [
            # Renewal first: a disk that stalls the commit of a heartbeat must not cost a lease.
            _Duty(ttl / 3, self.renew, now),
            _Duty(shared.options.beat_seconds, self.beat, now),
            _Duty(ttl / 4, self.take_over, now),
            _Duty(shared.options.beat_seconds, self.give_back, now),
        ]

    async def step(self) -> float:
        """Do what is due; returns the seconds until something is due again."""
        for duty in self._duties:
            if duty.due > self._clock.monotonic():
                continue
            try:
                if await duty.act():
                    self._found()
            except (Unavailable, TransactionAborted) as error:
                self._lost(error)
                return min(OUTAGE_SECONDS, self._shared.options.lease_seconds / 10)
            finally:
                duty.due = self._clock.monotonic() + duty.every
        self.all_done_once = True
        return max(min(duty.due for duty in self._duties) - self._clock.monotonic(), 0.0)

    async def beat(self) -> bool:
        """Write the heartbeat; what comes back is how many lanes live.

        Tells, as every duty does, whether it has asked the database anything.
        """
        self._shared.census = (await self._workers.beat(self._beat())).lanes
        return True

    async def renew(self) -> bool:
        """Renew all leases whose lanes vouch for themselves, in one statement."""
        leases = self._shared.book.renewable()
        if not leases:
            return False
        ttl = self._shared.options.lease_seconds
        sent_at = self._clock.monotonic()
        back = await self._work.renew(leases, ttl)
        self._shared.book.renewed(leases, back, sent_at, ttl)
        return True

    async def take_over(self) -> bool:
        """Take what expired; everybody may, the database lets one."""
        for taken in await self._work.take_over():
            self._notice(TookOver("", taken.lease, taken.run, taken.worker, taken.parts))
        return True

    async def give_back(self) -> bool:
        """Release leases whose lanes could not."""
        leases = self._shared.book.take_dropped()
        if not leases:
            return False
        try:
            await self._work.release(leases)
        except BaseException:
            self._shared.book.put_back(leases)
            raise
        return True

    async def leave(self) -> None:
        """Give back everything and sign off; errors are left to the leases' expiry."""
        try:
            await self.give_back()
            await self._workers.leave(self._beat().id)
        except (Unavailable, TransactionAborted) as error:
            self._lost(error)

    def _lost(self, error: Exception) -> None:
        self._well = False
        self._notice(DatabaseLost("", str(error), OUTAGE_SECONDS))

    def _found(self) -> None:
        if not self._well:
            self._well = True
            self._notice(DatabaseFound(""))

    def _notice(self, event: Any) -> None:
        self._observer.notice(event)
