"""Pitfall 17: every statement of the protocol stays on its index, whatever the planner believes of the tables.

`inbox` and `ready` swing between nothing and a million rows within minutes, so statistics are always stale; and a plan
that was kept from when a table was empty outlives the burst. Costs are counted in blocks, never in time.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import pytest

from headrace.domain.event import EVERYTHING, EventFilter
from headrace.domain.ids import LeaseId, Position
from headrace.domain.subscription import Subscription
from headrace.partitioning.keys import Stream
from headrace.ports.work import ClaimGroup, ClaimRequest, Loaded
from headrace.store.catalog import PostgresCatalog
from headrace.store.events import PostgresEvents
from headrace.store.pool import Database as Pool
from headrace.store.queries import Queries
from headrace.store.routing import PostgresRouting
from headrace.store.work import PostgresWork
from headrace.testing.randomness import FixedIdentity
from support import databases
from support.databases import Database
from support.figures import stats
from support.worlds import declared, flush_of, log_flush_of

T = TypeVar("T")

KEYS = 10
"""So many partitions are in a measured group; everything else in the tables must cost nothing."""

TABLES = ["partitions", "inbox", "ready", "events", "leases", "failures"]
STATES = {
    "never analyzed": (-1, 0),
    "analyzed when empty": (0, 0),
    "vacuumed when nearly empty": (10, 5000),
    "vacuumed when empty but long": (0, 5000),
    "as it is": None,
}
QUIET = "alter table headrace.{0} set (autovacuum_enabled = off)"
FILL = """
    insert into headrace.partitions (id, run, key) overriding system value
    select 1000 + g, $1, 'k' || g from generate_series(1, $2::int) g;
    insert into headrace.inbox (part, position) select 1000 + g, g from generate_series(1, $2::int) g;
    insert into headrace.ready (part, run, backlog, first_pos, due_at)
    select 1000 + g, $1, 1, g, now() - interval '1 hour' + g * interval '1 ms' from generate_series(1, $2::int) g;
    insert into headrace.events (stream, version, type, data)
    select 'k' || 1 + g % $2::int, 2 + g / $2::int, case when g % 50 = 0 then 'Rare' else 'T' || g % 3 end, '{}'
      from generate_series(0, $2::int + 20000) g;
    update headrace.cursors set position = $2::int, routed = $2::int, activated = $2::int, created = $2::int
     where run = $1
"""
BLOCKS = """
    select coalesce(sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read), 0)::bigint
      from pg_statio_user_tables where schemaname = 'headrace'
"""
FORGET = """
    delete from pg_statistic where starelid in (select ('headrace.' || t)::regclass from unnest($1::text[]) t)
"""
PRETEND = """
    update pg_class c set reltuples = $2, relpages = $3
     where c.oid in (select ('headrace.' || t)::regclass from unnest($1::text[]) t)
        or c.oid in (select i.indexrelid from pg_index i
                      where i.indrelid in (select ('headrace.' || t)::regclass from unnest($1::text[]) t))
"""


@dataclass(frozen=True, slots=True)
class Bench:
    """Adapters on one connection, so that plans are kept as in a worker, and the count of blocks they touch."""

    pool: Pool
    events: PostgresEvents
    admin: Any
    leases: Iterator[LeaseId] = field(default_factory=lambda: map(LeaseId, itertools.count(1)))

    @property
    def work(self) -> PostgresWork:
        """The lanes' adapter."""
        return PostgresWork(self.pool, self.events.table, FixedIdentity(1))

    @property
    def routing(self) -> PostgresRouting:
        """The router's adapter."""
        return PostgresRouting(self.pool, self.events.table)

    @property
    def catalog(self) -> PostgresCatalog:
        """The catalog's adapter."""
        return PostgresCatalog(self.pool, self.events.table, FixedIdentity(1))

    async def blocks(self) -> int:
        """Return the blocks touched so far by the adapters' connection."""
        async with self.pool.session() as session:
            await session.execute("select pg_stat_force_next_flush()")
        return int(await self.admin.fetchval(BLOCKS))

    async def cost(self, act: Callable[[], Awaitable[T]]) -> tuple[int, T]:
        """Return how many blocks a call touched, and its answer."""
        before = await self.blocks()
        answer = await act()
        return await self.blocks() - before, answer


@asynccontextmanager
async def bench(database: Database) -> AsyncIterator[Bench]:
    """Yield a bench on a database."""
    async with await Pool.open(database.dsn, max_size=1) as pool, database.connection() as admin:
        yield Bench(pool, await PostgresEvents.open(pool), admin)


async def subscribe(b: Bench, name: str = "orders", partitioned: bool = True) -> Subscription:
    """Declare and start a subscription."""
    (stored,) = await b.catalog.declare([declared(name, Stream() if partitioned else None)])
    return await b.catalog.start(stored, Position(0), Position(0))


async def fill(b: Bench, run: int, rows: int) -> None:
    """Make a subscription with so many keys, each with one event that waits, and events that are not routed."""
    for statement in FILL.split(";"):
        numbers = [run, rows] if "$2" in statement and "$1" in statement else [rows]
        text = statement if len(numbers) == 2 else statement.replace("$2", "$1")
        await b.admin.execute(text, *numbers)


@pytest.fixture(scope="module")
def rows(scale: float) -> int:
    """How many rows the large tables have: a million at full scale."""
    return 1_000_000 if scale >= 1 else 200_000


@pytest.fixture(scope="module")
def large(request: pytest.FixtureRequest, rows: int) -> Iterator[Database]:
    """A database shared by this module, filled and never analyzed."""
    version = databases.default_version()
    cluster = request.getfixturevalue(version.replace("pg", "cluster"))
    template = request.getfixturevalue(version.replace("pg", "template"))

    async def prepare(database: Database) -> None:
        async with bench(database) as b:
            for table in TABLES:
                await b.admin.execute(QUIET.format(table))
            orders = await subscribe(b)
            await fill(b, orders.run, rows)

    with databases.cloned(cluster, template, "stale_statistics") as database:
        asyncio.run(prepare(database))
        yield database


async def pretend(b: Bench, state: str) -> None:
    """Make the planner believe something about the tables."""
    await b.admin.execute(FORGET, TABLES)
    told = STATES[state]
    if told is None:
        await b.admin.execute("analyze " + ", ".join(f"headrace.{table}" for table in TABLES))
    else:
        await b.admin.execute(PRETEND, TABLES, *told)


async def measured(b: Bench, orders: Subscription) -> dict[str, int]:
    """Return what each statement of one round costs in blocks."""
    costs: dict[str, int] = {}

    async def count(name: str, act: Callable[[], Awaitable[T]]) -> T:
        costs[name], answer = await b.cost(act)
        return answer

    def request() -> ClaimRequest:
        return ClaimRequest(orders.run, next(b.leases), 1, KEYS, 10**6, 0, 1000.0)

    await count("due", lambda: b.work.due([orders.run]))
    group = await count("claim", lambda: b.work.claim(request()))
    assert isinstance(group, ClaimGroup)
    assert len(group.parts) == KEYS
    await count("renew", lambda: b.work.renew([group.lease], 1000.0))
    loaded = await count("load", lambda: b.work.load(group, 1000, 1000, 10**9))
    assert len(loaded.partitions) == KEYS
    await count("flush", lambda: b.work.flush(flush_of(group, loaded.partitions)))
    again = await b.work.claim(request())
    assert again is not None
    await count("release", lambda: b.work.release([again.lease]))
    await count("take over", b.work.take_over)
    line = await b.events.head()
    for name, wanted in (("route", EVERYTHING), ("route rare", EventFilter(types=("Rare",)))):
        result = await count(name, partial(b.routing.route, orders.run, Stream(), wanted, line, KEYS))
        assert result.routed == KEYS
    unrouted = await count("read unrouted", lambda: b.routing.read_unrouted(orders.run, EVERYTHING, line, KEYS, 10**6))
    keys = [(event.position, event.stream) for event in unrouted.events]
    await count("store routes", lambda: b.routing.store_routes(orders.run, unrouted.position, unrouted.last, keys))
    await count("caught up", lambda: b.catalog.caught_up(orders.run, line))
    await count("sweep", lambda: b.routing.sweep(orders.run, 3600.0, KEYS))
    await count("activate", lambda: b.catalog.activate(orders.run))
    return costs


LIMITS = {
    "due": 30, "claim": 600, "renew": 60, "load": 400, "flush": 800, "release": 500, "take over": 60, "route": 900,
    "route rare": 900, "read unrouted": 200, "store routes": 900, "caught up": 60, "sweep": 300, "activate": 60,
}  # fmt: skip
"""Blocks that a round of ten keys may touch: some dozens a key, nothing for all the others."""


def too_dear(costs: dict[str, int]) -> dict[str, int]:
    """Return what costs more than its limit."""
    return {name: blocks for name, blocks in costs.items() if blocks > LIMITS[name]}


@pytest.mark.parametrize("state", STATES)
async def test_costs_do_not_depend_on_statistics(large: Database, state: str) -> None:
    """PAR rows of cost: with tables full and statistics of any kind, ten keys cost what ten keys cost."""
    async with bench(large) as b:
        await pretend(b, state)
        (orders,) = await b.catalog.find(["orders"])
        costs = await measured(b, orders)
        assert too_dear(costs) == {}, costs


async def test_statistics_cost_a_bounded_number_of_blocks(large: Database, rows: int) -> None:
    """`stats_v1` counts what is near and extrapolates the rest: its price has a ceiling, the backlog has none."""
    async with bench(large) as b:
        await pretend(b, "analyzed when empty")
        blocks, (row,) = await b.cost(lambda: stats(b.pool))
        assert row.inboxed + row.waiting >= rows - 100
        assert blocks < 5000


async def test_plans_kept_from_empty_tables(database: Database, rows: int) -> None:
    """A worker that has worked on empty, analyzed tables keeps its plans; the burst after that costs no more."""
    async with bench(database) as b:
        for table in TABLES:
            await b.admin.execute(QUIET.format(table))
        orders = await subscribe(b)
        log = await subscribe(b, "log", partitioned=False)
        for version in range(1, 10):
            await b.admin.execute(
                "insert into headrace.events (stream, version, type, data) values ('w', $1, 'Rare', '{}')", version
            )
            await work_once(b, orders, log, version)
            if version == 7:
                await b.admin.execute("vacuum (analyze) headrace.ready, headrace.inbox, headrace.partitions")
        await b.admin.execute("delete from headrace.partitions where key = 'w'")
        await fill(b, orders.run, rows)
        costs = await measured(b, orders)
        assert too_dear(costs) == {}, costs


async def work_once(b: Bench, orders: Subscription, log: Subscription, version: int) -> None:
    """Let one event go all the way in both subscriptions."""
    line = await b.events.head()
    for wanted in (EVERYTHING, EventFilter(types=("Rare",))):
        await b.routing.route(orders.run, Stream(), wanted, line, KEYS)
    await b.work.due([orders.run, log.run])
    group = await b.work.claim(ClaimRequest(orders.run, next(b.leases), 1, KEYS, 10, 0, 1000.0))
    assert group is not None
    loaded = await b.work.load(group, 1000, 1000, 10**9)
    await b.work.flush(flush_of(group, loaded.partitions))
    whole = await b.work.claim_log(ClaimRequest(log.run, next(b.leases), 1, 1, 10, 0, 1000.0), line)
    assert whole is not None
    read: Loaded = await b.work.load_log(whole, EVERYTHING, line, 10, 10**9)
    await b.work.flush(log_flush_of(whole, read))
    await b.catalog.caught_up(orders.run, line)
    await b.routing.sweep(orders.run, 3600.0, KEYS)


NAIVE_DROP = """
    delete from headrace.ready r using unnest($2::bigint[], $3::int[]) u(part, n)
     where r.lease = $1 and r.part = u.part and r.backlog = u.n
"""
OUR_DROP = """
    delete from headrace.ready r
     where $1::bigint > 0 and r.part = any ($2::bigint[])
       and r.backlog = ($3::int[])[width_bucket(r.part, $2::bigint[])]
"""
NAIVE_TICKETS = """
    delete from headrace.inbox i using unnest($1::bigint[], $1::bigint[]) u(part, position)
     where i.part = u.part and i.position = u.position
"""


async def test_pitfall_17_lease_condition_beside_a_join(large: Database) -> None:
    """17: with the lease beside a join on the part, a kept plan compares every row with every part: n times n.

    Ours finds rows by an array of primary keys, and joins nothing.
    """
    keys = 200
    async with bench(large) as b:
        await pretend(b, "as it is")
        (orders,) = await b.catalog.find(["orders"])
        costs = {}
        for name, drop in (("naive", NAIVE_DROP), ("ours", OUR_DROP)):
            transaction = b.admin.transaction()
            await transaction.start()
            owner, ttl = FixedIdentity(1).id, timedelta(seconds=60)
            claimed = await b.admin.fetch(Queries().claim, orders.run, 17, owner, "w", 1, keys, 10**6, 0, ttl)
            parts, ones = ",".join(str(row["part"]) for row in claimed), ",".join("1" * keys)
            await b.admin.execute("set local plan_cache_mode = force_generic_plan")
            await b.admin.execute(f"prepare {name}(bigint, bigint[], int[]) as {drop}")
            costs[name] = await thrown_away(b.admin, f"execute {name}(17, '{{{parts}}}', '{{{ones}}}')")
            await transaction.rollback()
        assert costs["naive"] >= keys * (keys - 1)
        assert costs["ours"] == 0


async def test_pitfall_17_inbox_joined_by_a_stale_plan(large: Database) -> None:
    """17: an inbox that was vacuumed when nearly empty is read whole, once for all pairs, by a delete that joins it."""
    async with bench(large) as b:
        await pretend(b, "vacuumed when nearly empty")
        await b.admin.execute("set plan_cache_mode = force_generic_plan")
        await b.admin.execute(f"prepare tickets(bigint[]) as {NAIVE_TICKETS}")
        plan = "\n".join(row[0] for row in await b.admin.fetch("explain execute tickets('{1,2}')"))
        assert "Seq Scan on inbox" in plan
        assert "Join Filter" in plan


async def thrown_away(admin: Any, query: str) -> int:
    """Return how many pairs of rows the joins of a statement looked at in vain."""
    (plan,) = json.loads(await admin.fetchval(f"explain (analyze, format json) {query}"))

    def below(node: dict[str, Any]) -> int:
        vain = node.get("Rows Removed by Join Filter", 0) * node["Actual Loops"]
        return int(vain) + sum(below(child) for child in node.get("Plans", []))

    return below(plan["Plan"])
