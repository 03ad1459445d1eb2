"""The world of the PostgreSQL adapters, and its rows as an in-memory store to look at.

Time travel is done to the rows: everything that is stored as a time moves into the past.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg

from headrace.domain.event import Event, EventFilter
from headrace.domain.ids import PartitionKey, Position, Run
from headrace.domain.subscription import Declaration, ErrorClass, Kind, StartFrom, Status, Subscription
from headrace.ports.catalog import Catalog
from headrace.ports.work import FailureState, Work
from headrace.ports.workers import Beat
from headrace.store import check
from headrace.store.catalog import PostgresCatalog
from headrace.store.events import PostgresEvents, event_of
from headrace.store.failures import PostgresFailures
from headrace.store.holds import hold_key, unhold_key
from headrace.store.hooks import PostgresHooks
from headrace.store.horizon import PostgresHorizon
from headrace.store.pool import Database
from headrace.store.routing import PostgresRouting
from headrace.store.work import PostgresWork
from headrace.store.workers import PostgresWorkers
from headrace.testing.clock import ManualClock
from headrace.testing.invariants import LONGEST_TTL
from headrace.testing.memory import (
    AuditRow,
    CountersRow,
    CursorRow,
    FailureRow,
    LeaseRow,
    MemoryStore,
    PartitionRow,
    ReadyRow,
    SubscriptionRow,
    WorkerRow,
)
from headrace.testing.randomness import FixedIdentity
from support.databases import Database as TestDatabase
from support.rewinding import go_back, restore
from support.waiting import until
from support.worlds import World

EMPTY = """
truncate headrace.events, headrace.subscriptions, headrace.cursors, headrace.touches, headrace.partitions,
    headrace.inbox, headrace.ready, headrace.leases, headrace.failures, headrace.counters, headrace.workers,
    headrace.audit, headrace.sources restart identity;
alter sequence headrace.runs restart;
drop table if exists notes;
create table notes (place int generated always as identity, n int check (n <> 0));
"""
ORDER_BY_KEY = """
update headrace.ready r set due_at = $1::timestamptz + x.place * interval '1 us'
  from (select r.part, row_number() over (order by s.name collate "C", p.key) as place
          from headrace.ready r
          join headrace.partitions p on p.id = r.part
          join headrace.subscriptions s on s.run = r.run
         where r.due_at between $1::timestamptz and clock_timestamp()) x
 where r.part = x.part
"""
TIMES = {
    "subscriptions": ["retry_at", "created_at", "changed_at"],
    "partitions": ["touched_at"],
    "ready": ["due_at"],
    "leases": ["acquired_at", "expires_at"],
    "failures": ["first_failed_at", "failed_at", "next_retry_at"],
    "workers": ["started_at", "beat_at", "steady_since", "held_since"],
}


class PostgresWorld(World):
    """The ports of `headrace.store` on a database of the test's own."""

    def __init__(self, database: Database, events: PostgresEvents, admin: Any, open_another: Any) -> None:
        super().__init__()
        self.database = database
        self._admin = admin
        self._open_another = open_another
        self._deleted: set[Position] = set()
        self.events = self.reader = self.appender = events
        self.routing = PostgresRouting(database, events.table)
        self.catalog = PostgresCatalog(database, events.table, FixedIdentity(1))
        self.failures = PostgresFailures(database, events.table)
        self.workers = PostgresWorkers(database)
        self.horizon = PostgresHorizon(database, events.table)
        self.hooks = PostgresHooks(database)

    def make_work(self, worker: int) -> Work:
        """Return a worker on the shared pool."""
        return PostgresWork(self.database, self.events.table, FixedIdentity(worker))

    def make_catalog(self, worker: int) -> Catalog:
        """Return a catalog on the shared pool."""
        return PostgresCatalog(self.database, self.events.table, FixedIdentity(worker))

    async def image(self) -> MemoryStore:
        """Read every table in one snapshot."""
        async with self._admin.transaction(isolation="repeatable_read"):
            store = await image_of(self._admin)
        store.log.deleted |= self._deleted
        return store

    async def advance(self, seconds: float) -> None:
        """Move every stored time into the past."""
        for table, columns in TIMES.items():
            changes = ", ".join(f"{column} = {column} - make_interval(secs => $1)" for column in columns)
            await self._admin.execute(f"update headrace.{table} set {changes}", float(seconds))

    async def idle(self, seconds: float) -> None:
        """Wait until no session is idle in a transaction any more: the server has ended it."""
        await until(self._nobody_is_idle, message="the server ends the idle session")

    async def _nobody_is_idle(self) -> bool:
        idle = await self._admin.fetchval(
            "select count(*) from pg_stat_activity where datname = current_database() and state = 'idle in transaction'"
        )
        return bool(idle == 0)

    @asynccontextmanager
    async def cursor_taken(self, subscription: Subscription) -> AsyncIterator[None]:
        """Lock the cursor row from another session."""
        async with self._open_another() as other, other.transaction():
            await other.execute("select from headrace.cursors where run = $1 for no key update", subscription.run)
            yield

    async def delete_event(self, position: int) -> None:
        """Delete the row."""
        await self._admin.execute("delete from headrace.events where position = $1", position)
        self._deleted.add(Position(position))

    async def go_back(self, to: int) -> None:
        """Delete the rows and set the sequence."""
        await go_back(self._admin, to)

    async def restore(self) -> None:
        """Insert the rows and set the sequence."""
        await restore(self._admin)

    async def set_status(self, name: str, status: Status) -> None:
        """Update the row."""
        await self._admin.execute(
            "update headrace.subscriptions set prev_status = status, status = $2, epoch = epoch + 1 where name = $1",
            name,
            status.value,
        )

    async def set_hold(self, subscription: Subscription, key: str, hold: str | None) -> None:
        """Do what the commands do."""
        if hold is None:
            await unhold_key(self.database, subscription.run, PartitionKey(key))
        else:
            await hold_key(self.database, subscription.run, PartitionKey(key), hold)

    async def check(self, longest_ttl: timedelta = LONGEST_TTL) -> None:
        """Ask the twin's function about the rows, and the store's own."""
        await super().check(longest_ttl)
        async with self.database.session() as session:
            broken = await check.broken_invariants(session, longest_ttl)
        if self._deleted:
            # A cursor may rest where an event was that is deleted by now; the image knows which those are.
            broken = [sentence for sentence in broken if not sentence.startswith("I9")]
        assert not broken, "\n".join(broken)

    async def mark_time(self) -> Any:
        """Return the server's time."""
        return await self._admin.fetchval("select clock_timestamp()")

    async def order_by_key(self, mark: Any) -> None:
        """Write due times a microsecond apart."""
        await self._admin.execute(ORDER_BY_KEY, mark)

    async def notes(self) -> list[int]:
        """Read the table."""
        return [row["n"] for row in await self._admin.fetch("select n from notes order by place")]

    async def leave_hole(self) -> None:
        """Roll an insert back."""
        transaction = self._admin.transaction()
        await transaction.start()
        await self._admin.execute(
            "insert into headrace.events (stream, version, type, data) values ('hole', 1, 'Hole', '{}')"
        )
        await transaction.rollback()


@asynccontextmanager
async def postgres_world(database: TestDatabase) -> AsyncIterator[World]:
    """Yield a world on a migrated database."""
    async with await Database.open(database.dsn, max_size=6) as pool, database.connection() as admin:
        await admin.execute(EMPTY)
        events = await PostgresEvents.open(pool)
        yield PostgresWorld(pool, events, admin, database.connection)


def _later(value: Any) -> Any:
    """Return None for infinity, which the driver gives as the greatest datetime."""
    return None if value is None or value.year == 9999 else value


async def image_of(connection: "asyncpg.Connection[asyncpg.Record]") -> MemoryStore:
    """Return a store in memory that holds the rows of a database."""
    store = MemoryStore(ManualClock(await connection.fetchval("select clock_timestamp()")))
    await _load_log(connection, store)
    await _load_subscriptions(connection, store)
    await _load_parts(connection, store)
    for row in await connection.fetch("select * from headrace.leases"):
        store.leases.put(row["id"], _row(LeaseRow, row))
    for row in await connection.fetch("select *, class as failure_class from headrace.failures"):
        state, retry = FailureState(row["state"]), _later(row["next_retry_at"])
        store.failures.put(row["part"], _row(FailureRow, row, state=state, next_retry_at=retry))
    for row in await connection.fetch("select * from headrace.counters"):
        store.counters.put((row["run"], row["slot"]), _row(CountersRow, row))
    for row in await connection.fetch("select *, beat_every as every from headrace.workers"):
        lists = {name: tuple(row[name]) for name in ("subscriptions", "routing", "declared")}
        beat = _row(Beat, row, every=row["every"].total_seconds(), **lists)
        store.workers.put(row["id"], WorkerRow(beat, row["beat_at"], row["steady_since"]))
    for row in await connection.fetch("select * from headrace.audit order by id"):
        store.audit.append(_row(AuditRow, row))
    return store


def _row(kind: type[Any], row: Any, **changes: Any) -> Any:
    """Return a row value of the columns that it shares with a table."""
    values = {name: row[name] for name in kind.__slots__ if name not in changes}
    return kind(**values, **changes)


async def _load_log(connection: "asyncpg.Connection[asyncpg.Record]", store: MemoryStore) -> None:
    rows = await connection.fetch("select * from headrace.events order by position")
    found: list[Event[Any]] = [event_of(row) for row in rows]
    store.log.insert(found)
    store.log.sequence = Position(found[-1].position if found else 0)


async def _load_subscriptions(connection: "asyncpg.Connection[asyncpg.Record]", store: MemoryStore) -> None:
    for row in await connection.fetch("select * from headrace.subscriptions"):
        wanted = EventFilter(
            *(None if row[c] is None else tuple(row[c]) for c in ("wanted_types", "wanted_streams", "wanted_tags"))
        )
        kind = Kind(row["kind"])
        stored = Subscription(
            name=row["name"],
            app=row["app"],
            kind=kind,
            group=row["group_name"],
            partitioned=row["partitioned"],
            run=Run(row["run"]),
            status=Status(row["status"]),
            epoch=row["epoch"],
            prev_status=None if row["prev_status"] is None else Status(row["prev_status"]),
            error_class=None if row["error_class"] is None else ErrorClass(row["error_class"]),
            reason=row["reason"],
            retry_at=row["retry_at"],
            tries=row["tries"],
            declared=row["declared"],
        )
        declared = Declaration(
            row["name"], row["app"], kind, row["group_name"], row["partitioned"], wanted, StartFrom.BEGINNING
        )
        store.subscriptions.put(
            row["name"], SubscriptionRow(stored, declared, row["streak"], tuple(row["declarations"]))
        )
    for row in await connection.fetch("select * from headrace.cursors"):
        store.cursors.put(row["run"], _row(CursorRow, row))


async def _load_parts(connection: "asyncpg.Connection[asyncpg.Record]", store: MemoryStore) -> None:
    for row in await connection.fetch("select * from headrace.partitions"):
        partition = _row(PartitionRow, row, key=PartitionKey(row["key"]))
        store.partitions.put(partition.id, partition)
        store.keys.put((partition.run, partition.key), partition.id)
    for row in await connection.fetch(
        "select part, array_agg(position order by position) as positions from headrace.inbox group by part"
    ):
        store.inbox.put(row["part"], tuple(row["positions"]))
    for turn, row in enumerate(await connection.fetch("select * from headrace.ready order by due_at, part")):
        store.ready.put(row["part"], _row(ReadyRow, row, turn=turn, due_at=_later(row["due_at"])))
