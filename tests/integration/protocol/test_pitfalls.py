"""The tempting forms of the protocol's statements, each by a fixed schedule: how it breaks, and that ours does not.

Numbers are those of the pitfalls in docs/architecture.md. Two or three sessions, stopped between their statements.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from headrace.domain.errors import HandlerTimeout, HeadraceError, LeaseLost, TransactionAborted, Unavailable
from headrace.domain.ids import LeaseId, PartitionKey, Position
from headrace.domain.subscription import Status, Subscription
from headrace.embedded.cluster import Cluster
from headrace.ports.work import ClaimedPart, ClaimGroup, FailureState, FlushMode, Loaded
from headrace.store.holds import hold_key, unhold_key
from headrace.testing.randomness import FixedIdentity
from support.databases import Database, cloned, make_template
from support.rig import Rig, rig
from support.waiting import until
from support.worlds import by_key, failure_of, flush_of

BOTH = pytest.mark.parametrize("naive", [True, False], ids=["naive", "ours"])


@pytest.fixture
def lazy_disk(make_cluster: Callable[..., Cluster]) -> Iterator[Database]:
    """A database on a server of its own that writes its log ten seconds late, unless a commit waits for it."""
    cluster = make_cluster({"fsync": "on", "wal_writer_delay": "10s", "autovacuum": "off"})
    with cloned(cluster, make_template(cluster), "lazy_disk") as database:
        yield database


async def stop_writers(r: Rig) -> None:
    """Stop the server's processes that write its log unasked; only a commit that waits for the disk does now."""
    kinds = ["walwriter", "background writer", "checkpointer"]
    for row in await r.admin.fetch("select pid from pg_stat_activity where backend_type = any ($1)", kinds):
        os.kill(row["pid"], signal.SIGSTOP)


async def one_loaded(r: Rig) -> tuple[Subscription, ClaimGroup, Loaded]:
    """Return a subscription whose key `k` has one event, in the hands of worker 1."""
    orders = await r.world.subscribe()
    await r.world.append("k", "X")
    await r.world.route(orders)
    group = await r.world.claimed(orders)
    return orders, group, await r.world.load(group)


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
async def test_pitfall_3_fence_must_not_hold_up_renewal(database: Database, naive: bool) -> None:
    """3: an open work transaction that holds its lease FOR UPDATE keeps the worker's one renewal from renewing it."""
    async with rig(database) as r, r.session() as owner:
        _, group, _ = await one_loaded(r)
        work = r.world.work()
        if naive:
            async with owner.transaction():
                await owner.execute("select from headrace.leases where id = $1 for update", group.lease)
                assert await work.renew([group.lease], 1000.0) == set(), "skipped: it will expire under its owner"
        else:
            async with work.begin(group, 10.0):
                assert await work.renew([group.lease], 1000.0) == {group.lease}
        await work.release([group.lease])


@BOTH
async def test_pitfall_3_renewal_must_not_wait_for_one_lease(database: Database, naive: bool) -> None:
    """3: a renewal that waits for a lease in release lets all the others of its worker expire."""
    async with rig(database) as r, r.session() as releasing, r.session() as keeper:
        orders, first, _ = await one_loaded(r)
        await r.world.append("other", "X")
        await r.world.route(orders)
        second = await r.world.claimed(orders)
        leases = [first.lease, second.lease]
        transaction = releasing.transaction()
        await transaction.start()
        await releasing.execute("delete from headrace.leases where id = $1", first.lease)
        if naive:
            renewal = asyncio.create_task(
                keeper.fetch(
                    "update headrace.leases set expires_at = clock_timestamp() + interval '1000 s'"
                    " where id = any ($1) returning id",
                    leases,
                )
            )
            await r.blocked(keeper)
            await transaction.rollback()
            await renewal
        else:
            assert await r.world.work().renew(leases, 1000.0) == {second.lease}
            await transaction.rollback()
        await r.world.work().release(leases)


@BOTH
async def test_pitfall_4_stalled_owner_must_not_keep_its_rows(database: Database, naive: bool) -> None:
    """4: without fence and idle time-out at its start, a stalled owner's transaction blocks the next owner for ever.

    Ours is not taken over while its transaction is open, and the server ends that transaction when it is idle.
    """
    async with rig(database) as r, r.session() as stalled, r.session() as successor:
        await r.admin.execute("create table model (key text primary key, n int); insert into model values ('k', 0)")
        orders, group, _ = await one_loaded(r)
        change = "update model set n = n + 1 where key = 'k'"
        if naive:
            transaction = stalled.transaction()
            await transaction.start()
            await stalled.execute(change)
            await r.world.advance(2000)
            assert [taken.lease for taken in await r.world.work(2).take_over()] == [group.lease]
            waiting = asyncio.create_task(successor.execute(change))
            await r.blocked(successor)
            await transaction.rollback()
            await waiting
            return

        async def stall() -> None:
            async with r.world.work().begin(group, 0.3) as tx:
                await tx.connection.execute(change)
                await r.world.advance(2000)
                assert await r.world.work(2).take_over() == [], "its owner may still commit"
                await until(r.world.work(2).take_over, message="the server ends the idle transaction")
                await successor.execute(change)
                await tx.connection.execute(change)

        with pytest.raises((HandlerTimeout, Unavailable)):
            await stall()
        assert await r.admin.fetchval("select n from model") == 1
        assert await r.world.handle_all(orders, worker=2) == [1]


@BOTH
async def test_pitfall_6_a_lease_never_grows(database: Database, naive: bool) -> None:
    """6: keys added to a lease that is being taken over keep a lease id that names nothing; nobody ever claims them."""
    async with rig(database, sound=not naive) as r, r.session() as claiming:
        orders, group, _ = await one_loaded(r)
        await r.world.append("later", "X")
        await r.world.route(orders)
        await r.world.advance(2000)
        if naive:
            transaction = claiming.transaction()
            await transaction.start()
            await claiming.execute("update headrace.ready set lease = $1 where lease is null", group.lease)
            assert len(await r.world.work(2).take_over()) == 1
            await transaction.commit()
            assert any(found.startswith("I3") for found in await r.broken())
            return
        with pytest.raises(asyncpg.UniqueViolationError):
            await r.world.work().claim(replace(r.world.request(orders), lease=group.lease))
        assert len(await r.world.work(2).take_over()) == 1
        assert sorted(await r.world.handle_all(orders, worker=2)) == [1, 2]


async def test_pitfall_7_lease_ids_must_not_come_from_a_sequence(lazy_disk: Database) -> None:
    """7: what was claimed with asynchronous commit is forgotten in a crash, a sequence with it: ids come again.

    Ours are drawn at random by the client; the claim is forgotten as well, and its owner is refused.
    """
    async with rig(lazy_disk, sound=False) as r:
        orders = await r.world.subscribe()
        await r.world.append("k", "X")
        await r.world.route(orders)
        await r.admin.execute("create sequence lease_ids")
        await r.admin.execute("checkpoint")
        await stop_writers(r)
        await r.admin.execute("set synchronous_commit = off")
        group = await r.world.claimed(orders)
        drawn = [await r.admin.fetchval("select nextval('lease_ids')") for _ in range(40)]
        lazy_disk.cluster.kill()
        lazy_disk.cluster.start()
    async with rig(lazy_disk) as r:
        assert await r.admin.fetchval("select nextval('lease_ids')") in drawn, "given out a second time"
        assert await r.admin.fetchval("select count(*) from headrace.leases") == 0
        # The world draws from a seed, so here the client would give out the same id again, which ours never does.
        again = await r.world.work().claim(replace(r.world.request(orders), lease=LeaseId(group.lease ^ 1)))
        assert again is not None
        loaded = await r.world.load(again)
        with pytest.raises(LeaseLost):
            await r.world.work().flush(flush_of(group, loaded.partitions))
        await r.world.work().release([again.lease])


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


@BOTH
async def test_pitfall_15_status_is_looked_at_by_the_load(database: Database, naive: bool) -> None:
    """15: a claim that filters on status, in a snapshot from before the pause, lets handlers run after pause returned.

    Ours claims whatever the status and looks when the claim has committed: pause sees the lease, or the load the pause.
    """
    async with rig(database) as r, r.session() as claiming:
        orders = await r.world.subscribe()
        await r.world.append("k", "X")
        await r.world.route(orders)
        transaction = claiming.transaction()
        await transaction.start()
        request = r.world.request(orders)
        filtered = " and exists (select from headrace.subscriptions s where s.run = $1 and s.status = 'active')"
        claim = "select from headrace.ready r where r.run = $1" + filtered
        assert await claiming.fetch(claim, orders.run)
        rows = await claiming.fetch(
            r.queries.claim, orders.run, request.lease, FixedIdentity(1).id, "w", 1, 10, 10, 0, timedelta(seconds=1000)
        )
        await r.world.set_status("orders", Status.PAUSED)
        # What pause waits for: no lease of the run is left. It cannot see the claim, and returns.
        assert await r.admin.fetchval("select count(*) from headrace.leases where run = $1", orders.run) == 0
        await transaction.commit()
        parts = [row["part"] for row in rows]
        if naive:
            inbox = "select i.position from headrace.inbox i where i.part = any ($1)"
            assert await r.admin.fetch(inbox, parts), "a handler runs although pause has returned"
        else:
            group = ClaimGroup(orders.run, request.lease, tuple(_claimed(row) for row in rows))
            loaded = await r.world.load(group)
            assert (loaded.standing, loaded.partitions) == (True, ())
        await r.world.work().release([request.lease])


async def test_pitfall_18_due_time_is_an_index_condition(database: Database) -> None:
    """18: compared with a volatile clock, the due time filters every row of the run; with the statement's it bounds."""
    async with rig(database) as r:
        plans = {}
        for clock in ("clock_timestamp()", "statement_timestamp()"):
            rows = await r.admin.fetch(
                "explain select part from headrace.ready where run = 1 and lease is null"
                f" and due_at <= {clock} order by due_at limit 10"
            )
            plans[clock] = "\n".join(row[0] for row in rows)
        assert "Filter: (due_at <= clock_timestamp())" in plans["clock_timestamp()"]
        assert "due_at <= statement_timestamp()" in plans["statement_timestamp()"]
        assert "Filter" not in plans["statement_timestamp()"]
        source = await r.admin.fetchval("select prosrc from pg_proc where proname = 'claim_v1'")
        assert "due_at <= clock_timestamp()" not in source


async def test_pitfall_19_asynchronous_commit_is_set_inside_the_transaction(lazy_disk: Database) -> None:
    """19: a SET clause of the function ends before the commit and changes nothing; a claim waits for no disk."""
    async with rig(lazy_disk) as r:
        orders = await r.world.subscribe()
        await r.admin.execute(
            "create table told (n int);"
            " create function tell() returns void language plpgsql set synchronous_commit = off as"
            " $$ begin insert into told values (1); end $$"
        )
        unwritten = "select pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()"
        naive = ours = 0
        for _ in range(20):
            await r.admin.execute("select tell()")
            naive += await r.admin.fetchval(unwritten)
            await r.world.append("k", "X")
            await r.world.route(orders)
            group = await r.world.claimed(orders)
            ours += await r.admin.fetchval(unwritten)
            await r.world.work().flush(flush_of(group, (await r.world.load(group)).partitions))
        assert naive <= 1
        assert ours >= 19


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


async def test_keep_flush_of_a_stale_owner_changes_nothing(database: Database) -> None:
    """A flush that keeps its lease is fenced like any other: after a take-over it stores nothing."""
    async with rig(database) as r:
        orders, group, loaded = await one_loaded(r)
        await r.world.advance(2000)
        await r.world.work(2).take_over()
        for mode in FlushMode:
            with pytest.raises(LeaseLost):
                await r.world.work().flush(flush_of(group, loaded.partitions, mode))
        with pytest.raises(LeaseLost):
            await r.world.work().fail(failure_of(group, loaded.partitions[0]))
        with pytest.raises(HeadraceError):
            await r.world.work().slow(group.lease, loaded.partitions[0].part, 1.0)
        assert await r.world.handle_all(orders, worker=2) == [1]


def _claimed(row: Any) -> ClaimedPart:
    return ClaimedPart(row["part"], row["backlog"], row["attempts"], row["takeovers"])
