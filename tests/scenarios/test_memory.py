"""How much memory a worker process takes: bounded by its budgets, neither by how long the log is nor by what is in it.

Measured as the kernel measures it: the most that the process ever had resident.
"""

from collections.abc import Iterator

import pytest

from support.databases import Database
from support.fleet import Fleet, fleet
from support.processes import peak
from support.waiting import until

APP = "folding:app"
BY_BATCH = ("folded", "logwise")
EVERY_KIND = (*BY_BATCH, "single")
MIB = 1 << 20
MANY_EVENTS = 1_000_000
LARGE_EVENTS = 200
LEAST_LARGE_EVENTS = 64
"""Twice what the lanes of a process may load at a time: fewer would fit whatever they load."""

MOST_RESIDENT = 150 * MIB
MOST_WITH_LARGE_EVENTS = 180 * MIB

MANY = """
    insert into headrace.events (stream, version, type, data)
    select 'k' || i % $2, i / $2 + 1, 'Happened', jsonb_build_object('n', i, 'text', repeat('x', 100))
      from generate_series(0, $1::int - 1) i order by i
"""
# One half packs to nothing in the database, the other not at all.
BIG = """
    with dense as materialized (select string_agg(md5(j::text), '') as text from generate_series(1, 32768) j)
    insert into headrace.events (stream, version, type, data)
    select 'k' || i % $2, i / $2 + 1, 'Happened',
           jsonb_build_object('text', case when i % 2 = 0 then repeat('x', 1 << 20) else dense.text end)
      from generate_series(0, $1::int - 1) i cross join dense order by i
"""


async def append(database: Database, statement: str, events: int, keys: int) -> None:
    """Put events into the log, by turns over so many streams."""
    async with database.connection() as connection:
        await connection.execute(statement, events, keys, timeout=900)
        await connection.execute("analyze headrace.events")


async def folded(database: Database, table: str) -> tuple[int, int]:
    """Return how many events, and how many characters of text, a read model has seen."""
    async with database.connection() as connection:
        if await connection.fetchval("select to_regclass($1)", table) is None:
            return 0, 0
        row = await connection.fetchrow(f"select sum(events)::int, sum(bytes)::bigint from {table}")
    assert row is not None
    return row[0] or 0, row[1] or 0


@pytest.fixture
def workers(database: Database) -> Iterator[Fleet]:
    """Workers on this test's database."""
    with fleet(database.dsn) as made:
        yield made


async def most_resident(
    database: Database, workers: Fleet, tables: tuple[str, ...], events: int, length: int, lanes: int
) -> int:
    """Let a worker fold everything into these read models; return the most memory that it had, in bytes."""
    chosen = {"subscribers": ",".join(tables), "lanes": str(lanes)}
    worker = workers.start(APP, variables=chosen)

    async def is_done() -> bool:
        assert worker.running, worker.text()
        return all([(await folded(database, table))[0] >= events for table in tables])

    await until(is_done, 120 + events / 300, "everything is folded")
    most = peak(worker.pid)
    worker.terminate()
    assert worker.wait() == 0
    assert [await folded(database, table) for table in tables] == [(events, events * length)] * len(tables)
    return most


@pytest.mark.timeout(3600)
async def test_a_long_log_takes_no_more_memory(database: Database, workers: Fleet, scale: float) -> None:
    """A worker catches up with 1,000,000 events, by key and by log, and never has 150 MiB resident."""
    events = round(MANY_EVENTS * scale)
    await append(database, MANY, events, max(events // 20, 1))

    most = await most_resident(database, workers, BY_BATCH, events, 100, lanes=1)

    print(f"{events:,} events: {most / MIB:.0f} MiB resident")  # noqa: T201
    assert most < MOST_RESIDENT


@pytest.mark.timeout(3600)
async def test_large_events_do_not_add_up(database: Database, workers: Fleet, scale: float) -> None:
    """200 events of 1 MB, worked on by four lanes: they share one budget, so what is resident has an upper bound."""
    events = max(round(LARGE_EVENTS * scale), LEAST_LARGE_EVENTS)
    await append(database, BIG, events, 16)

    most = await most_resident(database, workers, EVERY_KIND, events, MIB, lanes=4)

    print(f"{events:,} events: {most / MIB:.0f} MiB resident")  # noqa: T201
    assert most < MOST_WITH_LARGE_EVENTS
