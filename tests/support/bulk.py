"""Many rows at once: events, idle partitions, one long inbox; and how many blocks of our tables were touched since.

Rows of the protocol are written as the router and the flush would have left them, so every invariant holds.
"""

import json
from typing import Any

from headrace.domain.event import EVERYTHING, EventFilter
from headrace.domain.ids import Run
from headrace.partitioning.keys import Partitioner
from headrace.store.events import PostgresEvents
from headrace.store.pool import Database as Pool
from headrace.store.routing import PostgresRouting
from support.databases import Database
from support.waiting import until

APPEND = """
    insert into headrace.events (stream, version, type, data, tags)
    select $3 || i % $2 * $5::int, $4 + i / $2 + 1, 'Happened', '{}'::jsonb, array['key:' || i % $2]
      from generate_series(0, $1::int - 1) i order by i
"""
IDLE = """
    insert into headrace.partitions (run, key)
    select s.run, 'k' || i from generate_series(0, $2::int - 1) i, headrace.subscriptions s where s.name = $1
"""
INBOX = """
    with s as (select s.run from headrace.subscriptions s where s.name = $1),
    e as (select count(*)::int as events, min(e.position) as first, max(e.position) as last from headrace.events e
           where e.stream = $2),
    p as (insert into headrace.partitions (run, key) select s.run, $2 from s returning id, run),
    r as (insert into headrace.ready (part, run, backlog, first_pos, due_at)
          select p.id, p.run, e.events, e.first, clock_timestamp() from p, e),
    c as (update headrace.cursors c set position = e.last, routed = e.events, activated = 1, created = 1
            from s, e where c.run = s.run)
    insert into headrace.inbox (part, position)
    select p.id, e.position from p, headrace.events e where e.stream = $2
"""
BLOCKS = """
    select coalesce(sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read
                        + coalesce(toast_blks_hit + toast_blks_read + tidx_blks_hit + tidx_blks_read, 0)), 0)::bigint
      from pg_statio_user_tables where schemaname = 'headrace' and relname <> 'workers'
"""
QUIET = """
    do $$ declare t text; begin
        for t in select format('%I.%I', schemaname, tablename) from pg_tables where schemaname = 'headrace' loop
            execute format('alter table %s set (autovacuum_enabled = off)', t);
        end loop;
    end $$
"""


async def append_many(
    database: Database, events: int, keys: int, *, prefix: str = "k", versions: int = 0, stride: int = 1
) -> None:
    """Append events in one statement, by turns over so many streams k0, k1, … (with `stride` 5: k0, k5, …).

    ``versions``: how many events each stream has already. The tags are `key:0`, `key:1`, …
    """
    async with database.connection() as connection:
        await connection.execute(APPEND, events, keys, prefix, versions, stride, timeout=600)


async def add_idle(database: Database, name: str, partitions: int) -> None:
    """Give a subscription idle partitions with the keys k0 to k(partitions - 1)."""
    async with database.connection() as connection:
        await connection.execute(IDLE, name, partitions, timeout=600)
        await connection.execute("analyze headrace.partitions")


async def add_inbox(database: Database, name: str, stream: str) -> None:
    """Route everything of one stream, of which a subscription has nothing yet, into one inbox."""
    async with database.connection() as connection:
        await connection.execute(INBOX, name, stream, timeout=600)
        for table in ("events", "inbox", "ready", "partitions"):
            await connection.execute(f"analyze headrace.{table}")


async def quiet(database: Database) -> None:
    """Keep autovacuum away, so that only what a test does touches blocks."""
    async with database.connection() as connection:
        await connection.execute(QUIET)


async def blocks_so_far(database: Database) -> int:
    """Return how many blocks of our tables and indexes were touched, heartbeats apart.

    Waits until every other session has ended, because a session reports what it touched at its end.
    """
    async with database.connection() as connection:

        async def is_alone() -> bool:
            others = await connection.fetchval(
                "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            )
            return bool(others == 0)

        await until(is_alone, 30.0, "all other sessions have ended")
    async with database.connection() as connection:
        return int(await connection.fetchval(BLOCKS))


async def blocks_of(connection: Any, query: str, *arguments: Any) -> tuple[int, int]:
    """Run a statement under EXPLAIN; return how many blocks it touched and how many rows it gave."""
    explained = await connection.fetchval(f"explain (analyze, buffers, format json) {query}", *arguments)
    (root,) = json.loads(explained)
    plan = root["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], plan["Actual Rows"]


async def route_all(database: Database, name: str, partitioner: Partitioner, wanted: EventFilter = EVERYTHING) -> None:
    """Route everything that is in the log, and handle nothing: what a worker that died after routing has left."""
    async with await Pool.open(database.dsn) as pool:
        events = await PostgresEvents.open(pool)
        routing, line = PostgresRouting(pool, events.table), await events.head()
        async with database.connection() as connection:
            run = Run(await connection.fetchval("select run from headrace.subscriptions where name = $1", name))
        while not (await routing.route(run, partitioner, wanted, line, 5_000)).complete:
            pass
