"""Fixed schedules on PostgreSQL: the ports of `headrace.store` beside raw sessions that stop wherever a test wants.

A raw session runs the very statements of the adapters, so a test can hold a transaction open between any two of
them. Waiting is for a lock that the server shows, never for time.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import asyncpg
import pytest

from headrace.domain.event import EVERYTHING, EventFilter
from headrace.domain.ids import PartitionId, PartitionKey
from headrace.domain.subscription import Subscription
from headrace.partitioning.keys import Partitioner, Stream
from headrace.ports.work import ClaimGroup, Loaded
from headrace.store.check import broken_invariants
from headrace.store.events import PostgresEvents
from headrace.store.pool import Database as Pool
from headrace.store.queries import Queries
from headrace.store.routing import PostgresRouting
from support.databases import Database
from support.postgres_world import PostgresWorld
from support.waiting import until

Raw: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

BOTH = pytest.mark.parametrize("naive", [True, False], ids=["naive", "ours"])
"""A schedule with the tempting form of a statement, and with ours."""


@dataclass(frozen=True, slots=True)
class Rig:
    """A world of adapters and the means to interleave them by hand."""

    world: PostgresWorld
    database: Database
    admin: Raw

    @property
    def pool(self) -> Pool:
        """The adapters' connections."""
        return self.world.database

    @property
    def routing(self) -> PostgresRouting:
        """The router's adapter."""
        assert isinstance(self.world.routing, PostgresRouting)
        return self.world.routing

    @property
    def queries(self) -> Queries:
        """The adapters' statements."""
        return self.pool.queries

    def session(self) -> Any:
        """Open a raw session of its own."""
        return self.database.connection()

    async def blocked(self, raw: Raw) -> None:
        """Wait until a raw session waits for a lock."""
        await self.blocked_pid(raw.get_server_pid())

    async def blocked_pid(self, pid: int) -> None:
        """Wait until a server process waits for a lock."""
        await until(
            lambda: self.admin.fetchval("select cardinality(pg_blocking_pids($1)) > 0", pid),
            message=f"process {pid} waits for a lock",
        )

    async def somebody_blocked(self) -> None:
        """Wait until any session of the adapters waits for a lock."""
        await until(
            lambda: self.admin.fetchval(
                "select count(*) > 0 from pg_stat_activity a where a.datname = current_database()"
                " and cardinality(pg_blocking_pids(a.pid)) > 0"
            ),
            message="a session waits for a lock",
        )

    async def lock_cursor(self, raw: Raw, subscription: Subscription) -> int:
        """Send the router's first statement in a raw transaction; returns the position."""
        row = await raw.fetchrow(self.routing._reader.head("route_lock"), subscription.run)
        assert row is not None, "the cursor is taken"
        return int(row["position"])

    async def route(
        self,
        raw: Raw,
        subscription: Subscription,
        position: int,
        by: Partitioner = Stream(),  # noqa: B008 - a frozen value
        wanted: EventFilter = EVERYTHING,
    ) -> asyncpg.Record:
        """Send the router's second statement in a raw transaction, without any check of its answer."""
        query, reading = self.routing._route_query(subscription.run, by, wanted, 1000)
        row = await raw.fetchrow(
            query,
            subscription.run,
            position,
            10**9,
            1001,
            None,
            None,
            None,
            reading.window,
            0,
            1000,
            None,
        )
        assert row is not None
        return row

    async def begin_route(self, raw: Raw, subscription: Subscription) -> None:
        """Route everything in the open transaction of a raw session."""
        await self.route(raw, subscription, await self.lock_cursor(raw, subscription))

    async def part(self, subscription: Subscription, key: str) -> PartitionId:
        """Return the partition of a key."""
        return await self.world.part(subscription, PartitionKey(key))

    async def backlog(self, subscription: Subscription, key: str) -> tuple[int, int | None]:
        """Return how many inbox entries a key has, and what its ready row says (None: no row)."""
        row = await self.admin.fetchrow(
            "select (select count(*) from headrace.inbox i where i.part = p.id) as entries,"
            " (select r.backlog from headrace.ready r where r.part = p.id) as backlog"
            " from headrace.partitions p where p.run = $1 and p.key = $2",
            subscription.run,
            key,
        )
        assert row is not None
        return row["entries"], row["backlog"]

    async def broken(self) -> list[str]:
        """Return which invariants do not hold."""
        async with self.pool.session() as session:
            return await broken_invariants(session)


@asynccontextmanager
async def rig(database: Database, *, sound: bool = True, pooler: bool = False) -> AsyncIterator[Rig]:
    """Yield a rig; at the end every invariant must hold, unless a test breaks them on purpose (``sound=False``)."""
    async with await Pool.open(database.dsn, max_size=6, pooler=pooler) as pool, database.connection() as admin:
        world = PostgresWorld(pool, await PostgresEvents.open(pool), admin, database.connection)
        made = Rig(world, database, admin)
        yield made
        if sound:
            assert await made.broken() == []


async def one_loaded(r: Rig) -> tuple[Subscription, ClaimGroup, Loaded]:
    """Return a subscription whose key `k` has one event, in the hands of worker 1."""
    orders = await r.world.subscribe()
    await r.world.append("k", "X")
    await r.world.route(orders)
    group = await r.world.claimed(orders)
    return orders, group, await r.world.load(group)
