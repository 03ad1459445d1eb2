"""The composition root: builds adapters, hands them to the engine, takes everything down again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Protocol

from headrace import __version__
from headrace.domain.engine_events import EngineEvent, HorizonHeld
from headrace.domain.mapping import TableMapping
from headrace.domain.subscription import Start
from headrace.engine.engine import Engine
from headrace.engine.horizon import HorizonService
from headrace.engine.keeper import Keeper
from headrace.engine.leases import LeaseBook
from headrace.engine.tracked import Ports, Shared
from headrace.engine.tuning import Tuning
from headrace.ports.observer import Observer
from headrace.ports.subscribers import BoundSubscriber, Subscribers
from headrace.ports.workers import Beat
from headrace.runtime.keeping import KeeperThread
from headrace.runtime.system import SystemClock, SystemIdentity, SystemRandomness
from headrace.store.catalog import PostgresCatalog
from headrace.store.events import PostgresEvents
from headrace.store.hooks import PostgresHooks
from headrace.store.horizon import PostgresHorizon
from headrace.store.mapping import EventTable, inspect_table
from headrace.store.migrate import require_schema
from headrace.store.pool import Database
from headrace.store.queries import DEFAULT_SCHEMA
from headrace.store.routing import PostgresRouting
from headrace.store.work import PostgresWork
from headrace.store.workers import PostgresWorkers

OnStatement = Callable[[str], None]

SPARE_CONNECTIONS = 6
"""For the horizon, routers, the look for due work, commands."""

KEEPER_CONNECTIONS = 2
FIRST_ROUND_SECONDS = 10.0
HELD_NEWS_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How to run an app; times in seconds. ``names`` and ``groups`` choose subscribers (all when empty)."""

    lanes: int = 1
    lease_seconds: float = 15.0
    handler_timeout: float = 30.0
    schema: str = DEFAULT_SCHEMA
    names: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    worker_name: str = ""
    start_from: Start | None = None
    pooler: bool = False
    tuning: Tuning | None = None
    on_statement: OnStatement | None = field(default=None, compare=False)
    on_clock_statement: OnStatement | None = field(default=None, compare=False)

    def tuned(self, app: str, worker_name: str) -> Tuning:
        """Return the engine's sizes and times for one app."""
        return replace(
            self.tuning or Tuning(app),
            app=app,
            worker_name=worker_name,
            version=__version__,
            lanes=self.lanes,
            lease_seconds=self.lease_seconds,
            handler_timeout=self.handler_timeout,
            start_from=self.start_from,
        )


class RunnableApp(Protocol):
    """What the composition needs of an application."""

    @property
    def name(self) -> str:
        """The name that owns the subscriptions."""
        ...

    @property
    def events(self) -> TableMapping | None:
        """The event table, where it is not ours."""
        ...

    def select(
        self, names: Iterable[str] | None = None, groups: Iterable[str] | None = None
    ) -> Sequence[BoundSubscriber]:
        """Return the chosen subscribers."""
        ...


class _HeldNews:
    """Passes events on and remembers the last news of a held line, for the heartbeat."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.last: HorizonHeld | None = None

    def notice(self, event: EngineEvent) -> None:
        if isinstance(event, HorizonHeld):
            self.last = event
        self._observer.notice(event)


@asynccontextmanager
async def open_engine(app: RunnableApp, dsn: str, options: EngineOptions, observer: Observer) -> AsyncIterator[Engine]:
    """Open an engine for an app: connections, horizon, the keeper's thread.

    Raises:
        Unavailable: the database cannot be reached.
        UsageError: the DSN, the schema, the role's rights or the event table forbid it; the message
            names the fix.

    """
    identity = SystemIdentity()
    worker_name = options.worker_name or identity.name
    tuning = options.tuned(app.name, worker_name)
    news = _HeldNews(observer)
    database = await Database.open(
        dsn,
        schema=options.schema,
        max_size=2 * options.lanes + SPARE_CONNECTIONS,
        application_name=f"headrace {app.name}",
        pooler=options.pooler,
        on_statement=options.on_statement,
    )
    async with database:
        async with database.session() as session:
            await require_schema(session)
            table = await inspect_table(session, app.events)
        exact = table.mapping.exact
        horizon = HorizonService(PostgresHorizon(database, table), SystemClock(), news, exact=exact)
        await horizon.start()
        shared = Shared(tuning, await _ports(database, table, identity, news), LeaseBook(SystemClock().monotonic))
        chosen = app.select(options.names or None, options.groups or None)
        subscribers: Subscribers = {bound.name: bound for bound in chosen}
        keeper = _keeper_thread(dsn, options, shared, horizon, identity, table, news, subscribers)
        with ThreadPoolExecutor(max_workers=_threads(subscribers, options), thread_name_prefix="handler") as threads:
            keeper.start()
            await asyncio.to_thread(keeper.wait_first_round, FIRST_ROUND_SECONDS)
            try:
                yield Engine(subscribers, shared, horizon, threads)
            finally:
                await asyncio.to_thread(keeper.stop)


async def _ports(database: Database, table: EventTable, identity: SystemIdentity, observer: Observer) -> Ports:
    return Ports(
        reader=PostgresEvents(database, table),
        routing=PostgresRouting(database, table),
        work=PostgresWork(database, table, identity),
        catalog=PostgresCatalog(database, table, identity),
        hooks=PostgresHooks(database),
        clock=SystemClock(),
        randomness=SystemRandomness(),
        observer=observer,
    )


def _threads(subscribers: Subscribers, options: EngineOptions) -> int:
    widest = max((s.concurrency for s in subscribers.values()), default=1)
    return min(max(options.lanes * widest, options.lanes), 64)


def _keeper_thread(
    dsn: str,
    options: EngineOptions,
    shared: Shared,
    horizon: HorizonService,
    identity: SystemIdentity,
    table: EventTable,
    news: _HeldNews,
    subscribers: Subscribers,
) -> KeeperThread:
    names = tuple(subscribers)
    declared = tuple(bound.declaration(shared.options.app).digest for bound in subscribers.values())

    def beat() -> Beat:
        latest, held = horizon.latest, news.last
        is_held = latest is not None and latest.is_held and held is not None
        return Beat(
            id=identity.id,
            app=shared.options.app,
            name=shared.options.worker_name,
            version=shared.options.version,
            subscriptions=names,
            lanes=options.lanes,
            every=shared.options.beat_seconds,
            source=table.source,
            horizon=None if latest is None else latest.line,
            head=None if latest is None else latest.head,
            held_by=held.holder if is_held and held is not None else None,
            held_since=SystemClock().now() - timedelta(seconds=held.since_seconds) if is_held and held else None,
            declared=declared,
        )

    @asynccontextmanager
    async def open_keeper() -> AsyncIterator[Keeper]:
        database = await Database.open(
            dsn,
            schema=options.schema,
            max_size=KEEPER_CONNECTIONS,
            application_name=f"headrace keeper {shared.options.app}",
            pooler=options.pooler,
            on_statement=options.on_clock_statement,
        )
        async with database:
            work = PostgresWork(database, table, identity)
            yield Keeper(shared, work, PostgresWorkers(database), SystemClock(), beat, news)

    return KeeperThread(open_keeper, news)
