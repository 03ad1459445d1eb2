"""What the engine tells whoever listens: metrics, logs, tests.

An observer must be quick and must not raise; what it does is none of the engine's business.
"""

from typing import Protocol

from headrace.domain.engine_events import EngineEvent


class Observer(Protocol):
    """Receives every engine event, on the event loop of the engine or on the keeper's thread."""

    def notice(self, event: EngineEvent) -> None:
        """Take one fact; never blocks, never raises."""
        ...
