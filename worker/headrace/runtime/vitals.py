"""Is this process well? One snapshot from the engine's word and the pulse of its loop, for any thread.

Not ready is not dead: a restart cures neither an outage of the database nor a handler that is slow within its
time-out, so neither fails the liveness probe.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from headrace.engine.results import Health

PULSE_SECONDS = 0.5
SHORTEST_LIMIT_SECONDS = 60.0


def longest_silence(timeouts: Iterable[float], lease_seconds: float) -> float:
    """Return for how many seconds the loop may stand still before it is taken for dead."""
    return max(2 * max(timeouts, default=0.0) + lease_seconds, SHORTEST_LIMIT_SECONDS)


class Vitals:
    """What the probes ask; ``engine`` and ``waiting_for`` may be set from the engine's loop at any time."""

    def __init__(self, limit: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Take the seconds after which a silent loop counts as dead."""
        self._limit = limit
        self._monotonic = monotonic
        self._beat_at = monotonic()
        self.engine: Callable[[], Health] | None = None
        self.waiting_for = "start-up"

    async def pulse(self) -> None:
        """Beat for ever, as a task on the loop that is watched."""
        while True:
            self.beat()
            await asyncio.sleep(PULSE_SECONDS)

    def beat(self) -> None:
        """Say that the loop runs."""
        self._beat_at = self._monotonic()

    def health(self) -> Health:
        """Return the snapshot."""
        engine = self.engine
        health = Health(reasons=(f"waiting for {self.waiting_for}",)) if engine is None else engine()
        silent = self._monotonic() - self._beat_at
        if silent > self._limit:
            reason = f"the event loop has stood still for {silent:.0f} s: is a handler blocking it?"
            return replace(health, alive=False, ready=False, reasons=(*health.reasons, reason))
        return health
