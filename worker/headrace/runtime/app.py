"""The application as users make it: subscribers, and an engine for them."""

from contextlib import AbstractAsyncContextManager

from headrace.domain.engine_events import EngineEvent
from headrace.engine.engine import Engine
from headrace.ports.observer import Observer
from headrace.runtime.compose import EngineOptions, open_engine
from headrace.subscribers.app import App as BoundApp


class _Unheard:
    """An observer for those who want none."""

    def notice(self, event: EngineEvent) -> None:
        """Let it pass."""


class App(BoundApp):
    """The subscribers that are deployed together.

    Name, subscribers and event table are those of ``headrace.subscribers.app.App``; this one can run.
    """

    def engine(
        self, dsn: str, options: EngineOptions | None = None, observer: Observer | None = None
    ) -> AbstractAsyncContextManager[Engine]:
        """Open an engine in this process: ``async with app.engine(dsn) as engine``.

        Raises:
            Unavailable: the database cannot be reached.
            UsageError: the DSN, the schema, the role's rights or the event table forbid it.

        """
        return open_engine(self, dsn, options or EngineOptions(), observer or _Unheard())
