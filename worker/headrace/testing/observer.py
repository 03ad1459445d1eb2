"""An observer that remembers, so that tests wait for what happened instead of sleeping."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from headrace.domain.engine_events import EngineEvent

E = TypeVar("E", bound=EngineEvent)

SHOWN = 10


class RecordingObserver:
    """Implements ``ports.observer.Observer``; may be told from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: list[EngineEvent] = []
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def notice(self, event: EngineEvent) -> None:
        """Remember one fact and wake whoever waits."""
        with self._lock:
            self._seen.append(event)
            for loop, changed in self._waiting:
                loop.call_soon_threadsafe(changed.set)

    @property
    def events(self) -> list[EngineEvent]:
        """Everything so far, in order."""
        with self._lock:
            return list(self._seen)

    def of(self, kind: type[E], subscription: str | None = None) -> list[E]:
        """Return the facts of one kind, of one subscription if it is given."""
        return [
            event for event in self.events if isinstance(event, kind) and subscription in (None, event.subscription)
        ]

    async def wait_for(self, predicate: Callable[[EngineEvent], bool], timeout: float = 10.0) -> EngineEvent:
        """Return the first fact, past ones included, for which ``predicate`` is true; ``timeout`` in real seconds.

        Raises:
            TimeoutError: none came; the message names the last facts.

        """
        changed = asyncio.Event()
        entry = (asyncio.get_running_loop(), changed)
        with self._lock:
            self._waiting.add(entry)
        try:
            async with asyncio.timeout(timeout):
                while (found := self._first(predicate)) is None:
                    await changed.wait()
                    changed.clear()
                return found
        except TimeoutError:
            raise TimeoutError(f"waited {timeout:g} s in vain; last seen: {self.events[-SHOWN:]}") from None
        finally:
            with self._lock:
                self._waiting.discard(entry)

    def _first(self, predicate: Callable[[EngineEvent], bool]) -> EngineEvent | None:
        return next((event for event in self.events if predicate(event)), None)
