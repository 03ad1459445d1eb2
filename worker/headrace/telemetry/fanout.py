"""Several observers in the place of one.

An observer that raises is somebody's bug, and the engine must not pay for it: its error is kept for one log line a
minute and everybody else still hears the fact.
"""

import logging
import time
from collections.abc import Callable, Sequence

from headrace.domain.engine_events import EngineEvent
from headrace.ports.observer import Observer

SECONDS_BETWEEN_COMPLAINTS = 60.0

_log = logging.getLogger("headrace.telemetry")


class Fanout:
    """Hands every fact to each observer, in order; raises never."""

    def __init__(self, observers: Sequence[Observer], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._observers = tuple(observers)
        self._monotonic = monotonic
        self._complained_at: dict[int, float] = {}
        self.errors = 0

    def notice(self, event: EngineEvent) -> None:
        """Tell all observers."""
        for number, observer in enumerate(self._observers):
            try:
                observer.notice(event)
            except Exception as error:  # noqa: BLE001 - whatever it is, the engine must not pay for it
                self.errors += 1
                self._complain(number, observer, event, error)

    def _complain(self, number: int, observer: Observer, event: EngineEvent, error: Exception) -> None:
        now = self._monotonic()
        last = self._complained_at.get(number)
        if last is not None and now - last < SECONDS_BETWEEN_COMPLAINTS:
            return
        self._complained_at[number] = now
        _log.error(
            "observer %s raised %s at %s; the engine goes on without it having heard this",
            type(observer).__name__,
            repr(error)[:500],
            type(event).__name__,
        )
