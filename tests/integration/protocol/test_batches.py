"""How the next wanted events are found: rare types without reading the others, dense ones in the order of positions.

No single statement looks at more than a bounded stretch of the log.
"""

import pytest

from headrace.domain.event import EVERYTHING, EventFilter
from headrace.domain.ids import Position
from headrace.partitioning.keys import Stream
from headrace.ports.routing import RouteOutcome
from headrace.store import batches
from support.databases import Database
from support.rig import rig

FILL = """
    insert into headrace.events (stream, version, type, data, tags)
    select 's' || g % 7, 1 + g / 7, case when g % 1000 = 0 then 'Rare' else 'T' || g % 3 end, '{}',
           case when g % 5000 = 0 then array['wanted', 'too'] else array['other'] end
      from generate_series(1, $1::int) g order by g
"""
BLOCKS = """
    select coalesce(sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read), 0)::bigint
      from pg_statio_user_tables where schemaname = 'headrace' and relname = 'events'
"""


async def test_rare_types_never_read_the_others(database: Database) -> None:
    """A batch of a rare type costs what its own events cost, whatever lies between them."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        await r.admin.execute(FILL, 20_000)
        await r.admin.execute("analyze headrace.events")
        costs = []
        for wanted in (EventFilter(types=("Rare",)), EVERYTHING):
            before = await r.admin.fetchval(BLOCKS)
            await r.world.routing.read_unrouted(orders.run, wanted, Position(20_000), 100_000, 10**9)
            async with r.pool.session() as session:
                await session.execute("select pg_stat_force_next_flush()")
            costs.append(await r.admin.fetchval(BLOCKS) - before)
        assert costs[0] * 3 < costs[1], costs


@pytest.mark.parametrize("types", [("Rare",), ("T0", "T1"), ("T0", "Rare"), ("Rare", "Rare", "nothing"), ()])
async def test_both_forms_find_the_same(database: Database, types: tuple[str, ...]) -> None:
    """Whichever form a batch takes, and wherever it changes between them, each wanted event comes once, in order."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        await r.admin.execute(FILL, 6_000)
        wanted = EventFilter(types=types)
        found: list[int] = []
        while True:
            result = await r.world.route(orders, wanted=wanted, limit=400)
            assert result.routed <= 400
            if result.complete:
                break
        rows = await r.admin.fetch("select position from headrace.inbox order by position")
        found = [row["position"] for row in rows]
        expected = await r.admin.fetch(
            "select position from headrace.events where type = any ($1) order by position", list(types)
        )
        assert found == [row["position"] for row in expected]
        assert result.position == 6_000


async def test_form_follows_what_the_last_batch_has_shown(database: Database) -> None:
    """Types that turn out to be most of the log are read in order; when they become rare again, by their index."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        await r.admin.execute(FILL, 3_000)
        wanted = EventFilter(types=("T0", "T1", "T2"))

        def by_type() -> bool:
            return r.routing._reader.reading(orders.run, wanted, 100, "upto_running").by_type

        assert by_type()
        await r.world.route(orders, wanted=wanted, limit=100)
        assert not by_type()
        while not (await r.world.route(orders, wanted=wanted, limit=1000)).complete:
            pass
        await r.admin.execute(
            "insert into headrace.events (stream, version, type, data)"
            " select 'quiet', g, 'Nobody', '{}' from generate_series(1, 500) g"
        )
        await r.world.route(orders, wanted=wanted, limit=100)
        assert by_type()


async def test_one_statement_looks_at_a_bounded_stretch(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that hardly matches moves the cursor stretch by stretch, and is complete only at the end."""
    monkeypatch.setattr(batches, "WINDOW_ROWS", 1_000)
    async with rig(database) as r:
        orders = await r.world.subscribe()
        await r.admin.execute(FILL, 12_500)
        wanted = EventFilter(tags=("wanted", "too"))
        seen = []
        while True:
            result = await r.world.route(orders, wanted=wanted, limit=10)
            seen.append((int(result.position), result.routed))
            if result.complete:
                break
        assert seen == [(1000 * n, int(n in {5, 10})) for n in range(1, 13)] + [(12_500, 0)]


async def test_line_of_nobody_reads_nothing(database: Database) -> None:
    """Where the subscription does not run no event is read, whichever form the batch takes."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        await r.admin.execute(FILL, 100)
        await r.admin.execute("update headrace.subscriptions set status = 'paused'")
        for wanted in (EVERYTHING, EventFilter(types=("T0",))):
            result = await r.world.routing.route(orders.run, Stream(), wanted, Position(100), 10)
            assert (result.outcome, result.routed) == (RouteOutcome.STANDING, 0)


async def test_partitioner_in_python_is_not_pushed_down(database: Database) -> None:
    """A partitioner that only Python can run is refused by the store, with the calls that do it."""

    class ByYear:
        def key(self, event: object) -> str:
            return "2026"

    async with rig(database) as r:
        orders = await r.world.subscribe()
        with pytest.raises(TypeError, match="read_unrouted"):
            await r.world.routing.route(orders.run, ByYear(), EVERYTHING, Position(1), 10)
