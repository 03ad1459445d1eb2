"""Time that passes only when a test says so.

A back-off of an hour costs nothing, and that nothing happened before its time can be asserted. It
never looks at the real clock.
"""

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from itertools import count

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
TURNS = 50
"""Times that the event loop goes round after each wake-up, so that woken tasks get to their next wait."""


class ManualClock:
    """Implements ``ports.clock.Clock``; time stands still between calls of ``advance``."""

    def __init__(self, start: datetime = EPOCH) -> None:
        self._start = start
        self._elapsed = timedelta()
        self._order = count()
        self._sleepers: list[tuple[timedelta, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """Return the time, with its zone."""
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """Return the seconds since the clock was made."""
        return self._elapsed.total_seconds()

    async def sleep(self, seconds: float) -> None:
        """Return when the clock was advanced by ``seconds``; lets others run when they are not positive."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + timedelta(seconds=seconds), next(self._order), waiting))
        await waiting

    def jump(self, seconds: float) -> None:
        """Move on by ``seconds`` at once; whoever sleeps no longer than that wakes at the new time."""
        self._elapsed += timedelta(seconds=seconds)
        self._wake()

    async def advance(self, seconds: float) -> None:
        """Move on by ``seconds`` from sleeper to sleeper: a loop with a pause goes round as often as it would."""
        target = self._elapsed + timedelta(seconds=seconds)
        await self.turn()
        while (due := self._next_due()) is not None and due <= target:
            self._elapsed = max(self._elapsed, due)
            self._wake()
            await self.turn()
        self._elapsed = target
        await self.turn()

    async def turn(self) -> None:
        """Let every task run that can."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    @property
    def sleepers(self) -> int:
        """How many wait for the clock."""
        return sum(not waiting.done() for _, _, waiting in self._sleepers)

    def _next_due(self) -> timedelta | None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def _wake(self) -> None:
        while (due := self._next_due()) is not None and due <= self._elapsed:
            heapq.heappop(self._sleepers)[2].set_result(None)
