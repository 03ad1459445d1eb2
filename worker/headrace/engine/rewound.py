"""A log that went back: a stored position above the value of the event table's sequence.

A restore of an older state, `setval` backwards or TRUNCATE ... RESTART IDENTITY does that. What is appended
then, up to the stored position, lies below what counts as handled, so nobody would ever look at it. Here that
is noticed, and the main stands still until the log is what it was. It must never go on only because the log
has grown past the position again: what grew there are other events.
"""

from headrace.domain.engine_events import MainStopped
from headrace.domain.event import EVERYTHING
from headrace.domain.horizon import Horizon
from headrace.domain.ids import START, Position
from headrace.domain.subscription import ErrorClass, Status, Subscription
from headrace.engine.horizon import HorizonService
from headrace.engine.tracked import Shared, Tracked

LOOK_SECONDS = 5.0
"""Between two looks whether the log is what it was."""


class Rewound:
    """Watches one subscription's stored position against the end of its log."""

    def __init__(self, shared: Shared, tracked: Tracked, horizon: HorizonService) -> None:
        """Take whom to watch, and the line of its event table."""
        self._tracked = tracked
        self._horizon = horizon
        self._ports = shared.ports
        self._looked_at = shared.ports.clock.monotonic()
        # What went back before this watch began was another one's: positions may have been stored since.
        self._began_with = 0 if horizon.latest is None else horizon.latest.starts
        self.starts = 0

    async def stops(self, horizon: Horizon) -> bool:
        """Put the main into error when the log went back below its position; tells if it did.

        Looks once for each start of the line, because only there can the sequence be lower than it was. A look that
        saw it lower decides, also when the log has grown again meanwhile.
        """
        if horizon.starts == self.starts:
            return False
        position = await self._position()
        if position > horizon.head and self._seen_back(horizon) is None:
            # Another process may have stored what a newer line allows: a look that begins now sees that line, too.
            horizon = await self._horizon.refresh()
        back_to = self._seen_back(horizon)
        lowest = horizon.head if back_to is None else back_to
        since = self._ports.clock.monotonic() if back_to is None or horizon.back_at is None else horizon.back_at
        stopped = position > lowest and await self._stop(position, lowest, since)
        self.starts = horizon.starts
        return stopped

    def _seen_back(self, horizon: Horizon) -> Position | None:
        return horizon.back_to if horizon.starts > self._began_with else None

    async def look_again(self) -> bool:
        """Every few seconds while the main stands in error: as ``recover``."""
        clock = self._ports.clock
        if self._tracked.stored.status is not Status.ERROR or clock.monotonic() - self._looked_at < LOOK_SECONDS:
            return False
        self._looked_at = clock.monotonic()
        return await self.recover()

    async def recover(self) -> bool:
        """Let a main that stands for its log go on when the log is what it was; tells if it does."""
        if self._tracked.stored.status is not Status.ERROR:
            return False
        stored = await self._refreshed()
        if not _stands_for_log(stored) or not await self._is_restored(stored):
            return False
        if not await self._ports.catalog.begin_retry(stored.run, ErrorClass.LOG, force=True):
            return False
        await self._refreshed()
        return True

    async def _stop(self, position: Position, head: Position, since: float) -> bool:
        # The time of the next try is that of the look that saw it: what is appended above that later is told from
        # what was there before.
        reason, now = reason_of(position, head), self._ports.clock.monotonic()
        await self._ports.catalog.stop_main(self._tracked.run, ErrorClass.LOG, reason, min(since - now, 0.0))
        self._looked_at = now
        if not _stands_for_log(await self._refreshed()):
            return False
        self._ports.observer.notice(MainStopped(self._tracked.name, ErrorClass.LOG, reason, LOOK_SECONDS))
        return True

    async def _is_restored(self, stored: Subscription) -> bool:
        """Tell whether the event at the stored position is there again, and is not a younger one in its place.

        A stored position is always the position of an event. One that was drawn after the log went back is younger.
        """
        position = await self._position()
        if position == START:
            return True
        horizon = await self._horizon.refresh()
        if position > horizon.head:
            return False
        page = await self._ports.reader.read(Position(position - 1), position, EVERYTHING, 1)
        appended_at = page.events[0].appended_at if page.events else None
        if appended_at is None or stored.retry_at is None or appended_at >= stored.retry_at:
            return False
        # The looks of a restore saw the sequence lower, too: they are answered with it.
        self.starts = horizon.starts
        return True

    async def _position(self) -> Position:
        return (await self._ports.catalog.caught_up(self._tracked.run, START)).position

    async def _refreshed(self) -> Subscription:
        found = await self._ports.catalog.find([self._tracked.name])
        # A name that was removed, or set up anew, is not what this engine works on.
        if found and found[0].run == self._tracked.run:
            self._tracked.stored = found[0]
        return self._tracked.stored


def reason_of(position: Position, head: Position) -> str:
    """Return what has happened and the ways out, for people."""
    return (
        f"its event table went back: this subscription has stored position {position} and the sequence went back to "
        f"{head}, so events that are appended up to {position} are not handled; restore the log to position "
        f"{position} or above, with the events and times it had, and it goes on within {LOOK_SECONDS:.0f} s; or, if "
        "those events are gone for good, declare the subscriber under a new name, which builds it anew"
    )


def _stands_for_log(stored: Subscription) -> bool:
    return stored.status is Status.ERROR and stored.error_class is ErrorClass.LOG
