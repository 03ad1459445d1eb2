"""`headrace check`: each invariant, broken by hand, is found and told in words."""

import pytest

from support.databases import Database
from support.rig import rig
from support.worlds import failure_of

BREAK = {
    "I1: partition": "insert into headrace.inbox select part, 1 + max(position) from headrace.inbox group by part",
    "I1: partition ": "update headrace.ready set backlog = backlog + 1",
    "nothing: it is not there": "delete from headrace.ready",
    "I2": "update headrace.ready set first_pos = first_pos + 1",
    "I3": "update headrace.ready set lease = 4711",
    "I4: inbox": "delete from headrace.partitions",
    "I4: ready": "delete from headrace.partitions",
    "I4: failures": "insert into headrace.failures (part, run, position, state, attempts, class, error_type, error)"
    " values (999, 1, 1, 'waiting', 1, '', '', '')",
    "I5": "update headrace.partitions set position = 1",
    "routed 2 - handled 0": "delete from headrace.inbox where position = 2",
    "activated 1 - drained 0": "update headrace.cursors set activated = 1",
    "I7: partition": "update headrace.ready set attempts = 1",
    "I7: partition ": "update headrace.ready set attempts = -1",
    "I8": "insert into headrace.leases (id, run, owner, worker, parts, events, expires_at)"
    " values (1, 1, gen_random_uuid(), 'w', 0, 0, now() + interval '1 day')",
    "I9": "delete from headrace.events where position = 2",
    "I10": "update headrace.ready set due_at = 'infinity'",
}


@pytest.mark.parametrize("finding", BREAK)
async def test_broken_invariant_is_found(database: Database, finding: str) -> None:
    """What holds before does not hold after one statement by hand, and the finding says so."""
    async with rig(database, sound=False) as r:
        orders = await r.world.subscribe()
        await r.world.append("a", "X")
        await r.world.append("b", "X")
        await r.world.route(orders)
        assert await r.broken() == []
        await r.admin.execute(BREAK[finding])
        broken = await r.broken()
        assert any(finding.strip() in sentence for sentence in broken), broken


async def test_sound_states_are_sound(database: Database) -> None:
    """Leased, failing, waiting, held, resumed, drained and unpartitioned keys are nothing to complain about."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        await r.world.subscribe("log", None)
        for stream in ("a", "b", "c"):
            await r.world.append(stream, "X")
        await r.world.route(orders)
        group = await r.world.claimed(orders)
        loaded = await r.world.load(group)
        assert await r.broken() == []
        await r.world.work().fail(failure_of(group, loaded.partitions[0]))
        assert await r.broken() == []
        await r.world.failures.resume(None, None, "me", "")
        assert await r.broken() == []
        await r.world.work().release([group.lease])
        await r.world.handle_all(orders)
        assert await r.admin.fetchval("select count(*) from headrace.ready where run = $1", orders.run) == 0


async def test_cursor_below_what_was_removed_is_sound(database: Database) -> None:
    """Old events may be removed from the bottom of the log; a cursor that rested on one of them is no finding."""
    async with rig(database) as r:
        orders = await r.world.subscribe()
        await r.world.append("a", "X", "X", "X")
        await r.world.route(orders, upto=1)
        await r.world.handle_all(orders)
        await r.admin.execute("delete from headrace.events where position = 1")
        assert await r.broken() == []
