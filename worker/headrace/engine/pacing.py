"""How much to claim, by what work has been measured to take. Pure.

Time decides, not counts: a claim should hold about one second of work, so that a slow handler
spreads over the workers and a fast one is not cut into crumbs.
"""

from dataclasses import dataclass

FLOOR_SECONDS = 0.05
"""A fair share is never cut below this much work."""

UNKNOWN_EVENTS = 100
"""Events of the first claim, before anything was measured."""

WEIGHT = 0.3
"""Weight of the newest group in the moving averages."""

STRONGEST = 0.8
"""The same of a group of many events: it measures them, where a group of one measures the claim around it."""

PREFETCH_SECONDS = 1.5
"""A next group is claimed ahead only behind groups that take less than this."""


@dataclass(frozen=True, slots=True)
class Portion:
    """Bounds of one claim."""

    parts: int
    events: int
    floor: int


class Pace:
    """Moving averages of one subscription in one process: seconds and bytes per event."""

    def __init__(self, budget_seconds: float, max_parts: int, max_events: int, max_bytes: int) -> None:
        """Take the ceilings of a claim."""
        self._budget = budget_seconds
        self._max_parts = max_parts
        self._max_events = max_events
        self._max_bytes = max_bytes
        self.seconds_per_event: float | None = None
        self.bytes_per_event: float | None = None
        self.last_seconds = 0.0

    def observe(self, events: int, seconds: float) -> None:
        """Take in one handled group."""
        self.last_seconds = seconds
        if events > 0:
            weight = min(max(WEIGHT, events / UNKNOWN_EVENTS), STRONGEST)
            self.seconds_per_event = _mixed(self.seconds_per_event, seconds / events, weight)

    def observe_bytes(self, events: int, size: int) -> None:
        """Take in the size of one load."""
        if events > 0:
            self.bytes_per_event = _mixed(self.bytes_per_event, size / events, WEIGHT)

    def portion(self, remaining: int | None = None) -> Portion:
        """Return the bounds of the next claim; ``remaining`` caps its events when a run is limited."""
        events, floor = UNKNOWN_EVENTS, 1
        if self.seconds_per_event is not None:
            per_event = max(self.seconds_per_event, 1e-9)
            # Rounded, not cut: what takes a little more than a fifth of the budget is still done five at a time.
            events = round(min(self._max_events, self._budget / per_event))
            floor = int(min(events, FLOOR_SECONDS / per_event))
        if self.bytes_per_event:
            events = int(min(events, self._max_bytes / self.bytes_per_event))
        if remaining is not None:
            events = min(events, remaining)
        events = max(events, 1)
        return Portion(self._max_parts, events, max(min(floor, events), 1))

    @property
    def may_prefetch(self) -> bool:
        """Whether claiming ahead keeps no key waiting for long."""
        return self.seconds_per_event is not None and self.last_seconds < PREFETCH_SECONDS


def _mixed(old: float | None, new: float, weight: float) -> float:
    return new if old is None else old + weight * (new - old)
