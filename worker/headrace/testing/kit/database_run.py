"""Subscribers on a real database, for the test of what they write.

Everything is what it is in production, but for one thing: a run ends when nothing is left to do now.
"""

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from headrace.domain.event import Appended, Event
from headrace.engine.results import RunResult
from headrace.ports.failures import Failure
from headrace.runtime.app import App
from headrace.runtime.event_store import AnyEvent, EventStore
from headrace.store.failures import PostgresFailures
from headrace.store.mapping import inspect_table
from headrace.store.pool import Database
from headrace.testing.kit.databases import TestDatabase
from headrace.testing.kit.runs import Run, verbs_of
from headrace.testing.kit.wording import Row, difference

__tracebackhide__ = True  # pytest shows the line of the test, not ours
NAME = "headrace test"
T = TypeVar("T")


class DatabaseRun(Run):
    """`given` events, `run` subscribers, `then` these rows; ``dsn`` is for code of the application's own."""

    def __init__(self, database: TestDatabase) -> None:
        super().__init__()
        self.dsn = database.dsn

    def rows(self, query: str, *args: Any) -> list[Row]:
        """Return the rows of a query, each a tuple; the database's error is raised as it sends it."""
        return self._plainly(self._rows(query, args))

    def execute(self, statement: str, *args: Any) -> None:
        """Run a statement of the test's own; the database's error is raised as it sends it."""
        self._plainly(self._execute(statement, args))

    def then(self, query: str, expected: Sequence[Row], *args: Any, in_order: bool = True) -> None:
        """Compare the rows of a query with the expected ones.

        Raises:
            AssertionError: they differ; the message says which rows are missing and which are too many.

        """
        problem = difference(query, [tuple(row) for row in expected], self.rows(query, *args), in_order=in_order)
        if problem is not None:
            raise AssertionError(problem + self._hint() + self._overlooked())

    def _plainly(self, work: Coroutine[Any, Any, T]) -> T:
        """Do what the test has asked of the database; an error shows the line of the test, no way to the driver."""
        try:
            return self._do(work)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is passed on
            raise error.with_traceback(None) from error.__cause__

    def _hint(self) -> str:
        if self._app is None:
            return "\nnothing was run: run(app), or run(OrdersByCustomer())"
        failing = [f"\n  {f.subscription}#{f.key} at event {f.position}: {f.error_type}" for f in self.failures()]
        return "".join(["\nfailing keys:", *failing]) if failing else ""

    async def _append(self, stream: str, events: Sequence[AnyEvent]) -> Appended:
        async with EventStore.connect(self.dsn, max_size=1) as store:
            return await store.append(stream, events)

    async def _log(self) -> Sequence[Event[Any]]:
        async with EventStore.connect(self.dsn, max_size=1) as store:
            return (await store.read()).events

    async def _verb(self, app: App, *verbs: Any) -> RunResult:
        async with app.engine(self.dsn) as engine:
            return await verbs_of(engine, verbs)

    async def _failures(self) -> list[Failure]:
        async with await Database.open(self.dsn, max_size=1, application_name=NAME) as database:
            async with database.session() as session:
                table = await inspect_table(session, None if self._app is None else self._app.events)
            return [failure async for failure in PostgresFailures(database, table).list()]

    async def _rows(self, query: str, args: Row) -> list[Row]:
        database = await Database.open(self.dsn, max_size=1, application_name=NAME)
        async with database, database.session() as session:
            return [tuple(row) for row in await session.for_user().fetch(query, *args)]

    async def _execute(self, statement: str, args: Row) -> None:
        database = await Database.open(self.dsn, max_size=1, application_name=NAME)
        async with database, database.session() as session:
            await session.for_user().execute(statement, *args)
