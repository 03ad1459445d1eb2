"""Reading pages: what is read costs what it returns, whatever else lies in the table."""

import json
import random
import re
from typing import Any

import pytest

from headrace.domain.event import EventFilter, NewEvent
from headrace.domain.ids import START, Position
from headrace.store.events import LAST_POSITION, PostgresEvents, _array
from headrace.store.pool import Database
from support import databases

FILL = """insert into headrace.events (stream, version, type, data, tags)
          select 's' || n % 100, n / 100 + 1, case when n % 10000 = 0 then 'Rare' else 'Common' end, '{}',
                 case when n % 5000 = 0 then array['rare:' || n % 10000] else '{}' end
            from generate_series(0, $1::int - 1) n"""


async def buffers(events: PostgresEvents, session: Any, wanted: EventFilter, after: int = 0, limit: int = 10) -> int:
    """Return how many buffers one page takes."""
    query = "explain (analyze, buffers, format json) " + events._read_query(session, wanted)
    arguments = (_array(wanted.types), _array(wanted.streams), _array(wanted.tags))
    plan = await session.fetchval(query, after, LAST_POSITION, *arguments, limit + 1, 10**9)
    found = json.loads(plan)[0]["Plan"]
    return int(found["Shared Hit Blocks"]) + int(found["Shared Read Blocks"])


@pytest.mark.both_versions
async def test_rare_events_are_found_without_reading_the_others(database: databases.Database) -> None:
    """A page of a rare type or tag reads few pages of a table of 60,000 events, on fresh statistics and on none."""
    async with await Database.open(database.dsn, max_size=2) as store, store.session() as session:
        events = await PostgresEvents.open(store)
        await session.execute(FILL, 60_000)
        for analyzed in (False, True):
            if analyzed:
                await session.execute("vacuum analyze headrace.events")
            assert await buffers(events, session, EventFilter(types=("Rare",))) < 100
            assert await buffers(events, session, EventFilter(types=("Rare", "Missing"))) < 100
            assert await buffers(events, session, EventFilter(), after=30_000) < 60
        assert await buffers(events, session, EventFilter(tags=("rare:0",))) < 60
        assert await buffers(events, session, EventFilter(streams=("s7",)), after=59_000) < 1000


@pytest.mark.parametrize("seed", range(6))
async def test_pages_of_any_filter_add_up(database: databases.Database, seed: int) -> None:
    """Whatever is wanted and however small the pages are, page by page every wanted event comes once, in order."""
    chance = random.Random(seed)
    async with await Database.open(database.dsn) as store:
        events = await PostgresEvents.open(store)
        given = [
            (
                f"s{chance.randrange(4)}",
                NewEvent(chance.choice("ABC"), n, chance.sample(["x", "y"], chance.randrange(3))),
            )
            for n in range(300)
        ]
        await events.append(given)
        all_of_them = (await events.read()).events
        assert len(all_of_them) == 300
        for types in (None, ("A",), ("A", "B"), ("Z",), ()):
            for streams in (None, ("s1",), ("s1", "s2")):
                for tags in (None, (), ("x",), ("x", "y")):
                    wanted = EventFilter(types, streams, tags)
                    upto, limit = Position(chance.randrange(200, 320)), chance.randrange(1, 40)
                    expected = [e.position for e in all_of_them if wanted.wants(e) and e.position <= upto]
                    found, after, more = [], START, True
                    while more:
                        page = await events.read(after, upto, wanted, limit)
                        assert len(page.events) <= limit
                        found += [event.position for event in page.events]
                        after, more = page.last, page.more
                    assert found == expected, wanted
                    assert after == min(upto, 300)


@pytest.mark.both_versions
async def test_compressed_data_counts_by_what_is_sent(database: databases.Database) -> None:
    """A megabyte that compresses to a few kilobytes is a megabyte to the reader: the budget looks inside."""
    async with await Database.open(database.dsn) as store:
        events = await PostgresEvents.open(store)
        await events.append([("s", NewEvent("T", "x" * 1_000_000)) for _ in range(10)])
        page = await events.read(max_bytes=3_500_000)
        assert (len(page.events), page.more) == (4, True)
        assert len((await events.read(page.last)).events) == 6


async def test_parameters_that_are_null_cost_nothing_in_a_kept_plan(database: databases.Database) -> None:
    """A plan that is kept for any parameters still starts at the position: no filter over the whole table."""
    async with await Database.open(database.dsn) as store, store.session() as session:
        events = await PostgresEvents.open(store)
        await session.execute(FILL, 20_000)
        await session.execute("analyze headrace.events; set plan_cache_mode = force_generic_plan")
        query = events._read_query(session, EventFilter())
        await session.execute(f"prepare page (bigint, bigint, text[], text[], text[], bigint, bigint) as {query};")
        rows = await session.fetch("explain execute page (0, 9000000000, null, null, null, 11, 1000000000)")
        plan = "\n".join(row[0] for row in rows)
        assert re.search(r"One-Time Filter: \(\(\$3 IS NULL\) AND \(\$4 IS NULL\) AND \(\$5 IS NULL\)\)", plan), plan
        assert re.search(r'Index Scan using events_pkey on events e .*\n\s+Index Cond: \(\("position" > \$1\)', plan), (
            plan
        )
