"""Subscribers without a database, for unit tests: milliseconds, the same in every run, an hour costs nothing.

There are no tables in memory. What handlers write is kept as they sent it, what they read is answered by the test; a
read model that must hold rows is tested on a database.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from headrace.domain.errors import Unavailable
from headrace.domain.event import Appended, Event
from headrace.engine.engine import Engine
from headrace.engine.horizon import HorizonService
from headrace.engine.leases import LeaseBook
from headrace.engine.results import RunResult
from headrace.engine.tracked import Ports, Shared
from headrace.engine.tuning import Tuning
from headrace.ports.failures import Failure
from headrace.runtime.app import App
from headrace.runtime.event_store import AnyEvent, EventStore
from headrace.store.events import PostgresEvents
from headrace.testing.appending import MemoryEvents
from headrace.testing.catalog import MemoryCatalog
from headrace.testing.clock import ManualClock
from headrace.testing.connection import NoAnswer, Statement
from headrace.testing.failures import MemoryFailures
from headrace.testing.hooks import MemoryHooks
from headrace.testing.horizon import MemoryHorizonSource
from headrace.testing.invariants import broken_invariants
from headrace.testing.kit.runs import Run, verbs_of
from headrace.testing.kit.wording import squeezed, unsent
from headrace.testing.memory import MemoryStore
from headrace.testing.observer import RecordingObserver
from headrace.testing.randomness import FixedIdentity, SeededRandomness
from headrace.testing.routing import MemoryRouting
from headrace.testing.work import MemoryWork

__tracebackhide__ = True  # pytest shows the line of the test, not ours
READING = ("select", "with", "table", "values", "show")


class MemoryRun(Run):
    """`given` events, `run` subscribers, `then_sent` these statements; ``clock`` stands still until `advance`."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock, self._respond)
        self.observer = RecordingObserver()
        self._events = MemoryEvents(self.store)
        self._answers: list[tuple[str, list[Any]]] = []
        self._engines: dict[App, Engine] = {}
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="handler")

    def close(self) -> None:
        """End the run's own loop and threads."""
        self._threads.shutdown()
        super().close()

    def answer(self, query: str, *rows: Any) -> None:
        """Answer what handlers read: statements that hold ``query`` get these rows, mappings or sequences.

        Of several that fit, the one given last answers.
        """
        self._answers.insert(0, (squeezed(query), list(rows)))

    def advance(self, seconds: float) -> None:
        """Let time pass: what backs off becomes due, and is tried by the next `run`."""
        self._do(self.clock.advance(seconds))

    @property
    def sent(self) -> list[Statement]:
        """What handlers have sent and committed, in order, set-up included."""
        return list(self.store.executed)

    def then_sent(self, query: str, *args: Any) -> None:
        """Expect that a handler has sent a statement that holds ``query``, with these arguments (any, when none given).

        Raises:
            AssertionError: none has; the message says what was sent instead.

        """
        for statement in self.store.executed:
            fits = not args or statement.args == args
            if fits and squeezed(query) in squeezed(statement.query):
                return
        sent = [(s.query, s.args) for s in self.store.executed]
        raise AssertionError(unsent(query, args, sent) + self._overlooked())

    async def _append(self, stream: str, events: Sequence[AnyEvent]) -> Appended:
        return await self._event_store().append(stream, events)

    async def _log(self) -> Sequence[Event[Any]]:
        return (await self._event_store().read()).events

    async def _verb(self, app: App, *verbs: Any) -> RunResult:
        result = await verbs_of(self._engine(app), verbs)
        broken = broken_invariants(self.store)
        if broken:
            raise Unavailable(f"a mistake of the testing kit, please report it: {broken}")
        return result

    async def _failures(self) -> list[Failure]:
        return [failure async for failure in MemoryFailures(self.store).list()]

    def _event_store(self) -> EventStore:
        # Reading and appending are what the store needs of its port, and the twin has both.
        return EventStore(cast("PostgresEvents", self._events))

    def _engine(self, app: App) -> Engine:
        """Return the engine of an app, one for all its runs."""
        if app not in self._engines:
            identity = FixedIdentity()
            ports = Ports(
                reader=self._events,
                routing=MemoryRouting(self.store),
                work=MemoryWork(self.store, identity),
                catalog=MemoryCatalog(self.store, identity),
                hooks=MemoryHooks(self.store),
                clock=self.clock,
                randomness=SeededRandomness(),
                observer=self.observer,
            )
            horizon = HorizonService(MemoryHorizonSource(self.store), self.clock, self.observer)
            shared = Shared(Tuning(app.name), ports, LeaseBook(self.clock.monotonic))
            self._engines[app] = Engine(app.subscribers, shared, horizon, self._threads)
        return self._engines[app]

    def _respond(self, statement: Statement) -> list[Any]:
        text = squeezed(statement.query)
        for query, rows in self._answers:
            if query in text:
                return rows
        if text.lower().startswith(READING):
            raise NoAnswer(f"a handler reads, and nothing answers {text!r}: memory_run.answer({text[:40]!r}, rows)")
        return []
