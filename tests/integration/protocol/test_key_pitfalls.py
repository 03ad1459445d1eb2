"""The tempting forms of statements on keys: how events, holds and inbox entries get lost, and that ours keep them.

Numbers are those of the pitfalls in docs/architecture.md. Two or three sessions, stopped between their statements.
"""

import asyncio
from typing import Any

import asyncpg
import pytest

from headrace.domain.errors import LeaseLost, TransactionAborted
from headrace.domain.ids import PartitionKey, Position
from headrace.ports.work import FailureState
from headrace.store.holds import hold_key, unhold_key
from headrace.testing.randomness import FixedIdentity
from support.databases import Database
from support.rig import BOTH, one_loaded, rig
from support.worlds import by_key, failure_of, flush_of


@BOTH
async def test_pitfall_1_router_must_lock_the_ready_row(database: Database, naive: bool) -> None:
    """1: a router that leaves an existing ready row alone loses its event to a flush that drops the row meanwhile.

    Ours raises the backlog, so the flush waits for it and compares the new one.
    """
    async with rig(database, sound=not naive) as r, r.session() as router:
        orders, group, loaded = await one_loaded(r)
        await r.world.append("k", "X")
        transaction = router.transaction()
        await transaction.start()
        if naive:
            part = await r.part(orders, "k")
            await router.execute("insert into headrace.inbox values ($1, 2)", part)
            await router.execute(
                "insert into headrace.ready (part, run, backlog, first_pos, due_at)"
                " values ($1, $2, 1, 2, now()) on conflict do nothing",
                part,
                orders.run,
            )
            await r.world.work().flush(flush_of(group, loaded.partitions))
            await transaction.commit()
            assert await r.backlog(orders, "k") == (1, None), "the event should be asleep for ever"
            return
        await r.begin_route(router, orders)
        flush = asyncio.create_task(r.world.work().flush(flush_of(group, loaded.partitions)))
        await r.somebody_blocked()
        await transaction.commit()
        assert (await flush).drained == 0
        assert await r.backlog(orders, "k") == (1, 1)
        assert await r.world.handle_all(orders) == [2]


@BOTH
async def test_pitfall_2_look_into_the_inbox_after_the_lock(database: Database, naive: bool) -> None:
    """2: one statement that locks the ready row and looks into the inbox sees the row new and the inbox old."""
    async with rig(database, sound=not naive) as r, r.session() as router, r.session() as worker:
        orders, group, loaded = await one_loaded(r)
        part = await r.part(orders, "k")
        await r.world.append("k", "X")
        transaction = router.transaction()
        await transaction.start()
        await r.begin_route(router, orders)
        if naive:
            await worker.execute("delete from headrace.inbox where part = $1 and position = 1", part)
            dropping: asyncio.Task[Any] = asyncio.create_task(
                worker.execute(
                    "with l as (select from headrace.ready where part = $1 for update)"
                    " delete from headrace.ready r using l where r.part = $1"
                    " and not exists (select from headrace.inbox i where i.part = r.part)",
                    part,
                )
            )
        else:
            dropping = asyncio.create_task(r.world.work().flush(flush_of(group, loaded.partitions)))
        await r.somebody_blocked()
        await transaction.commit()
        await dropping
        assert await r.backlog(orders, "k") == ((1, None) if naive else (1, 1))
        if not naive:
            assert await r.world.handle_all(orders) == [2]


@BOTH
async def test_pitfall_8_router_must_not_look_at_the_hold(database: Database, naive: bool) -> None:
    """8: a router that makes a held key due never, while a person lets it go, puts it to sleep for ever."""
    async with rig(database, sound=not naive) as r, r.session() as router:
        orders = await r.world.subscribe()
        part = await hold_key(r.pool, orders.run, PartitionKey("k"))
        await r.world.append("k", "X")
        transaction = router.transaction()
        await transaction.start()
        if naive:
            await router.execute("insert into headrace.inbox values ($1, 1)", part)
            await router.execute(
                "insert into headrace.ready (part, run, backlog, first_pos, due_at)"
                " select p.id, p.run, 1, 1, case when p.hold is null then now() else 'infinity' end"
                " from headrace.partitions p where p.id = $1",
                part,
            )
        else:
            await r.begin_route(router, orders)
        assert await unhold_key(r.pool, orders.run, PartitionKey("k"))
        await transaction.commit()
        if naive:
            assert any(found.startswith("I10") for found in await r.broken())
            assert await r.world.claim(orders) is None
        else:
            assert await r.world.handle_all(orders) == [1]


@BOTH
async def test_pitfall_8_hold_of_a_worker_must_lock_the_partition(database: Database, naive: bool) -> None:
    """8: a worker that acts on a hold it has read puts a key to sleep that was let go; ours looks under a lock."""
    async with rig(database, sound=not naive) as r, r.session() as person, r.session() as worker:
        orders, group, _ = await one_loaded(r)
        part = await r.part(orders, "k")
        await hold_key(r.pool, orders.run, PartitionKey("k"))
        assert (await r.world.load(group)).held == (part,)
        unholding = person.transaction()
        await unholding.start()
        await person.execute(r.queries.unhold_partition, orders.run, "k")
        if naive:
            await person.execute(r.queries.unhold_ready, part)
            await unholding.commit()
            await worker.execute("update headrace.ready set due_at = 'infinity', lease = null where part = $1", part)
            await r.world.work().release([group.lease])
            assert await r.world.claim(orders) is None
            return
        holding = asyncio.create_task(r.world.work().hold(group.lease, [part]))
        await r.somebody_blocked()
        await person.execute(r.queries.unhold_ready, part)
        await unholding.commit()
        assert await holding == 0
        await r.world.work().release([group.lease])
        assert await r.world.handle_all(orders) == [1]


@BOTH
async def test_pitfall_9_parked_keys_stay_in_ready(database: Database, naive: bool) -> None:
    """9: a parked key without a ready row is woken, or lost, by the next event; ours keeps its row, due later."""
    async with rig(database, sound=not naive) as r:
        orders, group, loaded = await one_loaded(r)
        part = await r.part(orders, "k")
        failure = failure_of(group, by_key(loaded)["k"], state=FailureState.WAITING, delay=None)
        await r.world.work().fail(failure)
        await r.world.work().release([group.lease])
        await r.world.append("k", "X")
        if naive:
            await r.admin.execute("delete from headrace.ready where part = $1", part)
            await r.world.route(orders)
            woken = await r.world.claimed(orders)
            assert [p.part for p in woken.parts] == [part], "the router cannot know that the key is parked"
            return
        await r.world.route(orders)
        assert await r.world.claim(orders) is None
        assert await r.backlog(orders, "k") == (2, 2)


@BOTH
async def test_pitfall_11_inbox_entries_are_deleted_exactly(database: Database, naive: bool) -> None:
    """11: a delete up to a position takes with it what was put below that position meanwhile, unhandled and unseen."""
    async with rig(database, sound=False) as r:
        orders = await r.world.subscribe()
        await r.world.append("k", "X", "X")
        await r.admin.execute("update headrace.cursors set position = 1 where run = $1", orders.run)
        await r.world.route(orders)
        group = await r.world.claimed(orders)
        loaded = await r.world.load(group)
        part = await r.part(orders, "k")
        await r.admin.execute("insert into headrace.inbox values ($1, 1)", part)
        await r.admin.execute("update headrace.ready set backlog = 2, first_pos = 1 where part = $1", part)
        if naive:
            await r.admin.execute("delete from headrace.inbox where part = $1 and position <= 2", part)
            assert (await r.backlog(orders, "k"))[0] == 0, "position 1 is gone, and no handler has seen it"
            return
        # What ours deletes is what was handled; that something lies below is found and refused as well.
        with pytest.raises(asyncpg.NotNullViolationError):
            await r.world.work().flush(flush_of(group, loaded.partitions))
        assert (await r.backlog(orders, "k"))[0] == 2


@BOTH
async def test_pitfall_11_an_inbox_entry_is_used_once(database: Database, naive: bool) -> None:
    """11: even without a fence a second use of an inbox entry is found by its count; up-to deletes see nothing."""
    async with rig(database) as r, r.session() as raw:
        orders, group, loaded = await one_loaded(r)
        part = await r.part(orders, "k")
        await r.world.advance(2000)
        await r.world.work(2).take_over()
        assert await r.world.handle_all(orders, worker=2) == [1]
        if naive:
            deleted = await raw.execute("delete from headrace.inbox where part = $1 and position <= 1", part)
            assert deleted == "DELETE 0", "the stale owner has doubled its effect and goes on"
            return
        await r.admin.execute("update headrace.partitions set position = 0 where id = $1", part)
        async with raw.transaction():
            with pytest.raises(asyncpg.PostgresError) as refused:
                async with raw.transaction():
                    await raw.execute(
                        "select headrace.flush_v1($1, $2, $3, false, $4, $5, array[1], $4, $5, 0, 0::int2, 0, 'end')",
                        orders.run,
                        group.lease,
                        FixedIdentity(1).id,
                        [part],
                        [1],
                    )
            assert refused.value.sqlstate == "HR003"
        with pytest.raises(LeaseLost):
            await r.world.work().flush(flush_of(group, loaded.partitions))


@BOTH
async def test_pitfall_12_partitions_made_beside_the_router(database: Database, naive: bool) -> None:
    """12: a partition that appears beside the router swallows its events; ours counts, gives up and routes again."""
    async with rig(database, sound=not naive) as r, r.session() as beside, r.session() as router:
        orders = await r.world.subscribe()
        await r.world.append("k", "X")
        making = beside.transaction()
        await making.start()
        await beside.execute("insert into headrace.partitions (run, key) values ($1, 'k')", orders.run)
        if naive:
            transaction = router.transaction()
            await transaction.start()
            position = await r.lock_cursor(router, orders)
            routing: asyncio.Task[Any] = asyncio.create_task(r.route(router, orders, position))
            await r.blocked(router)
            await making.commit()
            await routing
            await transaction.commit()
            assert await r.admin.fetchval("select position from headrace.cursors") == 1
            assert await r.backlog(orders, "k") == (0, None), "the event should have vanished"
            return
        routing = asyncio.create_task(r.world.route(orders))
        await r.somebody_blocked()
        await making.commit()
        with pytest.raises(TransactionAborted, match="without the cursor row lock"):
            await routing
        assert (await r.world.route(orders)).routed == 1


async def test_pitfall_12_hold_of_a_new_key_waits_for_the_router(database: Database) -> None:
    """12: who makes a partition by command takes the cursor row lock first, so it never runs beside a router."""
    async with rig(database) as r, r.session() as router:
        orders = await r.world.subscribe()
        await r.world.append("k", "X")
        transaction = router.transaction()
        await transaction.start()
        await r.lock_cursor(router, orders)
        holding = asyncio.create_task(hold_key(r.pool, orders.run, PartitionKey("k")))
        await r.somebody_blocked()
        await r.route(router, orders, 0)
        await transaction.commit()
        assert await holding == await r.part(orders, "k")
        assert await r.backlog(orders, "k") == (1, 1)
        assert await r.world.claim(orders) is None


@BOTH
async def test_pitfall_13_ids_of_keys_are_looked_up_in_the_routing_transaction(database: Database, naive: bool) -> None:
    """13: a router in the client that remembers the id of a key fills the inbox of a partition that is gone."""
    async with rig(database, sound=not naive) as r:
        orders = await r.world.subscribe()
        await r.world.append("k", "X")
        await r.world.route(orders)
        assert await r.world.handle_all(orders) == [1]
        remembered = await r.part(orders, "k")
        await r.world.advance(100)
        assert await r.world.routing.sweep(orders.run, 10.0, 100) == 1
        await r.world.append("k", "X")
        if naive:
            await r.admin.execute("insert into headrace.inbox values ($1, 2)", remembered)
            assert any(found.startswith("I4") for found in await r.broken())
            return
        stored = await r.world.routing.store_routes(orders.run, Position(1), Position(2), [(Position(2), "k")])
        assert (stored.routed, stored.created) == (1, 1)
        assert await r.part(orders, "k") != remembered
        assert await r.world.handle_all(orders) == [2]
