"""What a run on a database and a run in memory have in common: their words, and how a failing handler ends a test.

`given` appends events, `run` lets subscribers handle what there is, and what became of it is asked afterwards. The
words are plain calls, so a test needs no `async` and no other plugin.
"""

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from headrace.domain.errors import UsageError
from headrace.domain.event import Appended, Event
from headrace.engine.engine import Engine
from headrace.engine.results import RunError, RunResult
from headrace.ports.failures import Failure
from headrace.runtime.app import App
from headrace.runtime.event_store import AnyEvent
from headrace.testing.kit.hints import overlooked
from headrace.testing.kit.loop import OwnLoop

__tracebackhide__ = True  # pytest shows the line of the test, not ours
APP = "test"
T = TypeVar("T")


class HandlersFailed(AssertionError):
    """Handlers of a run have raised, and the test did not say that they would."""


class Run(ABC):
    """Subscribers under test, and the log they read."""

    def __init__(self) -> None:
        self._loop = OwnLoop()
        self._app: App | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the run's own loop."""
        self._loop.close()

    def given(self, stream: str, *events: AnyEvent) -> Appended:
        """Append events to a stream: pydantic models, or ``NewEvent(type, data, tags=…)``.

        Raises:
            BadInput: an event cannot be stored.

        """
        if not events:
            raise UsageError(f"given({stream!r}) without an event: given({stream!r}, OrderPlaced(…))")
        return self._do(self._append(stream, events))

    def set_up(self, *subscribers: object) -> None:
        """Set subscribers, or an App, up without handling anything: where a reactor starts is decided now.

        Raises:
            HandlersFailed: a @setup raised.

        """
        self._raise_for(self._do(self._verb(self._chosen(subscribers), Engine.setup)))

    def run(self, *subscribers: object, failing: bool = False) -> RunResult:
        """Set subscribers, or an App, up where they are new, and handle all that waits; without any, those of before.

        Raises:
            HandlersFailed: a handler raised, unless ``failing`` says that one will; look at ``failures()`` then.

        """
        result = self._do(self._handle(self._chosen(subscribers)))
        if not failing:
            self._raise_for(result)
        return result

    def failures(self) -> list[Failure]:
        """Return the keys that fail now: backing off or parked, by subscription and position."""
        return self._do(self._failures())

    @abstractmethod
    async def _append(self, stream: str, events: Sequence[AnyEvent]) -> Appended: ...

    @abstractmethod
    async def _failures(self) -> list[Failure]: ...

    @abstractmethod
    async def _verb(self, app: App, *verbs: Any) -> RunResult: ...

    @abstractmethod
    async def _log(self) -> Sequence[Event[Any]]: ...

    def _overlooked(self) -> str:
        """Return what to say beside a failed expectation of events that nobody got to see; '' when there is nothing."""
        if self._app is None or self._app.events is not None:
            return ""
        return "".join(f"\n{line}" for line in overlooked(list(self._app.subscribers.values()), self._do(self._log())))

    async def _handle(self, app: App) -> RunResult:
        return await self._verb(app, Engine.setup, Engine.boot, Engine.run)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.do(work)

    def _chosen(self, subscribers: Sequence[object]) -> App:
        match subscribers:
            case [App() as app]:
                self._app = app
            case [_, *_]:
                self._app = App(*subscribers, name=APP)
            case _ if self._app is None:
                raise UsageError("say what shall run the first time: run(app), or run(OrdersByCustomer())")
        return self._app

    def _raise_for(self, result: RunResult) -> None:
        if result.errors:
            raise HandlersFailed("\n\n".join(_sentence(error) for error in result.errors))


async def verbs_of(engine: Engine, verbs: Sequence[Any]) -> RunResult:
    """Do verbs of the engine one after the other and return what they did together."""
    done = RunResult()
    for verb in verbs:
        result = await verb(engine)
        done = RunResult(
            done.processed + result.processed, result.has_pending, result.all_locked, done.errors + result.errors
        )
    return done


def _sentence(error: RunError) -> str:
    where = error.subscription if error.key is None else f"{error.subscription}#{error.key}"
    at = "" if error.position is None else f" at event {error.position}"
    return f"{where}{at}: {error.text}"
