"""What a bounded run did, counted from the engine's own events, and whether the database answers."""

from headrace.domain.engine_events import (
    DatabaseFound,
    DatabaseLost,
    EngineEvent,
    Flushed,
    KeyFailed,
    MainStopped,
    Routed,
)
from headrace.engine.results import RunError
from headrace.ports.observer import Observer

MOST_ERRORS = 1000
"""A run reports at most so many errors; all of them are in the failures table."""


class Tally:
    """Counts one run."""

    def __init__(self) -> None:
        """Start at nothing."""
        self.routed = 0
        self.processed = 0
        self.flushes = 0
        self.errors: list[RunError] = []

    def notice(self, event: EngineEvent) -> None:
        """Count one fact."""
        match event:
            case Routed():
                self.routed += event.events
            case Flushed():
                self.processed += event.events
                self.flushes += 1
            case KeyFailed() if len(self.errors) < MOST_ERRORS:
                self.errors.append(RunError(event.subscription, event.key, event.position, event.error))
            case MainStopped() if len(self.errors) < MOST_ERRORS:
                self.errors.append(RunError(event.subscription, None, None, event.reason))

    @property
    def mark(self) -> tuple[int, int, int, int]:
        """Something that changes whenever anything was done."""
        return self.routed, self.processed, self.flushes, len(self.errors)


class Listening:
    """Hands every engine event to the given observer and to the tallies of runs under way.

    Called from the keeper's thread too, so it only ever assigns and iterates a replaced tuple.
    """

    def __init__(self, observer: Observer) -> None:
        """Take whom to pass everything on to."""
        self._observer = observer
        self._tallies: tuple[Tally, ...] = ()
        self.database_lost: str | None = None

    def notice(self, event: EngineEvent) -> None:
        """Pass one fact on."""
        match event:
            case DatabaseLost():
                self.database_lost = event.error
            case DatabaseFound() | Routed() | Flushed():
                self.database_lost = None
        for tally in self._tallies:
            tally.notice(event)
        self._observer.notice(event)

    def add(self, tally: Tally) -> None:
        """Let a run count from now on."""
        self._tallies = (*self._tallies, tally)

    def remove(self, tally: Tally) -> None:
        """Stop counting for a run."""
        self._tallies = tuple(t for t in self._tallies if t is not tally)
