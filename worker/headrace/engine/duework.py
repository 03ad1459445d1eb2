"""The look for due work: sets marks for idle lanes, whoever routed the work or freed it."""

from collections.abc import Sequence

from headrace.domain.engine_events import DatabaseLost
from headrace.domain.errors import TransactionAborted, Unavailable
from headrace.domain.ids import Run
from headrace.domain.subscription import Status
from headrace.engine.tracked import Shared, Tracked
from headrace.engine.wake import Wake

OUTAGE_SECONDS = 1.0


class DueWork:
    """Polls, in one statement for all subscriptions, and only while a lane has nothing to do."""

    def __init__(self, shared: Shared, tracked: Sequence[Tracked], wake: Wake) -> None:
        """Take what to look at and whom to wake."""
        self._shared = shared
        self._tracked = {t.run: t for t in tracked}
        self._wake = wake

    async def run(self) -> None:
        """Look until draining: quickly after work was found, then more and more seldom."""
        options = self._shared.options
        pause = options.poll_min
        while not self._shared.draining:
            try:
                found = self._wake.waiting > 0 and await self.look()
            except (Unavailable, TransactionAborted) as error:
                self._shared.ports.observer.notice(DatabaseLost("", str(error), OUTAGE_SECONDS))
                pause, found = OUTAGE_SECONDS, False
            pause = options.poll_min if found else min(pause * 2, options.poll_max)
            await self._shared.ports.clock.sleep(pause)

    async def look(self) -> bool:
        """Mark every run with due work and keep the statuses up to date; tells whether any was marked."""
        found = False
        runs: list[Run] = list(self._tracked)
        answers = await self._shared.ports.work.due(runs)
        changed = {t.name: t for a in answers if (t := self._tracked[a.run]).take_status(Status(a.status), a.epoch)}
        if changed:
            for stored in await self._shared.ports.catalog.find(list(changed)):
                changed[stored.name].stored = stored
        for due in answers:
            tracked = self._tracked[due.run]
            if tracked.stored.status.is_running and tracked.in_charge and due.due:
                self._wake.mark(due.run)
                # The one ready row of an unpartitioned run is due all day: no reason to look more often.
                found = found or tracked.partitioned
        return found
