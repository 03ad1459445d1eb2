"""Signals become a drain: the first asks, the second insists, and nobody waits for ever after that.

Python's own signal handlers rather than the loop's: they run between two steps of a handler that blocks the loop, so
even then a second Ctrl-C ends the process.
"""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)
LAST_WORDS_SECONDS = 3.0

_log = logging.getLogger("headrace.worker")


class Shutdown:
    """Counts signals; ``stop`` is set by the first, ``cancel`` called by the second."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stop: asyncio.Event,
        cancel: Callable[[], object],
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self._loop = loop
        self._stop = stop
        self._cancel = cancel
        self._leave = leave
        self.received = 0

    def take(self, number: int) -> None:
        """Take one signal, on the main thread, at whatever the process is doing."""
        self.received += 1
        name = signal.Signals(number).name
        if self.received == 1:
            _log.info("%s: draining; a second signal ends at once, and leaves the rest to other workers", name)
            self._loop.call_soon_threadsafe(self._stop.set)
            return
        _log.warning("%s again: ending now", name)
        self._loop.call_soon_threadsafe(self._cancel)
        # The loop may be blocked by a handler; leases that are not given back are taken over when they expire.
        timer = threading.Timer(LAST_WORDS_SECONDS, self._leave, (128 + number,))
        timer.daemon = True
        timer.start()


@contextmanager
def signals_to(shutdown: Shutdown) -> Iterator[None]:
    """Send SIGTERM and SIGINT there for the time of a block; only on the main thread."""

    def handle(number: int, _frame: FrameType | None) -> None:
        shutdown.take(number)

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
