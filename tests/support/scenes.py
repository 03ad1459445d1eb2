"""Scenarios in this process: an engine on a test's database, events by plain SQL, and questions to the tables."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headrace.domain.engine_events import EngineEvent
from headrace.engine.engine import Engine
from headrace.engine.tuning import Tuning
from headrace.failures.backoff import RetryPolicy
from headrace.runtime.app import App
from headrace.runtime.compose import EngineOptions
from headrace.testing.observer import RecordingObserver
from support.databases import Database
from support.waiting import until

APPEND = """
    insert into headrace.events (stream, version, type, data)
    select $1, coalesce(max(version), 0) + 1, $2, $3 from headrace.events where stream = $1
    returning position
"""
QUICK = RetryPolicy(
    attempts=1, base=timedelta(milliseconds=20), jitter=0, parked_base=timedelta(hours=1), parked_attempts=1
)
"""One retry after 20 ms, then parked for longer than any test takes."""

New = tuple[str, str, Any]
"""Stream, type, data."""


@dataclass(frozen=True, slots=True)
class Scene:
    """An engine at work and what it reported."""

    database: Database
    engine: Engine
    observer: RecordingObserver

    def of(self, kind: type[Any], name: str | None = None) -> list[Any]:
        """Return the facts of one kind."""
        found: list[Any] = self.observer.of(kind, name)
        return found

    async def saw(self, kind: type[EngineEvent], timeout: float = 30.0, **values: Any) -> Any:
        """Wait for a fact of one kind with these values."""
        return await self.observer.wait_for(
            lambda event: (
                isinstance(event, kind) and all(getattr(event, name) == value for name, value in values.items())
            ),
            timeout,
        )


@asynccontextmanager
async def opened(app: App, database: Database, options: EngineOptions | None = None) -> AsyncIterator[Scene]:
    """Yield an engine on which a test calls the verbs itself."""
    observer = RecordingObserver()
    async with app.engine(database.dsn, options or EngineOptions(), observer) as engine:
        yield Scene(database, engine, observer)


@asynccontextmanager
async def serving(app: App, database: Database, options: EngineOptions | None = None) -> AsyncIterator[Scene]:
    """Yield an engine that works as a worker process does; it is drained at the end."""
    stop = asyncio.Event()
    async with opened(app, database, options) as scene:
        worker = asyncio.create_task(scene.engine.serve(stop), name="serve")
        try:
            yield scene
        finally:
            stop.set()
            await worker


def options(lanes: int = 1, lease_seconds: float = 15.0, **tuning: Any) -> EngineOptions:
    """Return options of an engine, with sizes and times of its tuning by name."""
    return EngineOptions(lanes=lanes, lease_seconds=lease_seconds, tuning=Tuning("", **tuning) if tuning else None)


async def append(database: Database, *events: New) -> list[int]:
    """Append events, each in a transaction of its own; return their positions."""
    async with database.connection() as connection:
        return [
            await connection.fetchval(APPEND, stream, kind, data if isinstance(data, str) else json.dumps(data))
            for stream, kind, data in events
        ]


async def execute(database: Database, *statements: str) -> None:
    """Run statements."""
    async with database.connection() as connection:
        for statement in statements:
            await connection.execute(statement)


async def rows(database: Database, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
    """Return rows as tuples."""
    async with database.connection() as connection:
        return [tuple(row) for row in await connection.fetch(query, *arguments)]


async def value(database: Database, query: str, *arguments: Any) -> Any:
    """Return one value."""
    async with database.connection() as connection:
        return await connection.fetchval(query, *arguments)


async def until_value(database: Database, query: str, wanted: Any, timeout: float = 60.0, every: float = 0.05) -> None:
    """Wait until a query has this one value; a table that is missing yet, or a database that is down, is waited for."""
    last: list[Any] = [None]

    async def has_it() -> bool:
        try:
            last[0] = await value(database, query)
        except Exception as error:  # noqa: BLE001 - an outage may be what is tested
            last[0] = error
        return bool(last[0] == wanted)

    try:
        await until(has_it, timeout, every=every)
    except AssertionError:
        raise AssertionError(f"{query!r} is {last[0]!r} and not {wanted!r} after {timeout:g} s") from None


async def until_caught_up(scene: Scene, names: Sequence[str], timeout: float = 60.0) -> None:
    """Wait until subscriptions have handled what is in the log now."""
    for name in names:
        await scene.engine.wait_for(name, timeout=timeout)
