"""The tempting forms of statements on leases, each by a fixed schedule: how it breaks, and that ours does not.

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

from headrace.domain.errors import HandlerTimeout, HeadraceError, LeaseLost, Unavailable
from headrace.domain.ids import LeaseId
from headrace.domain.subscription import Status
from headrace.embedded.cluster import Cluster
from headrace.ports.work import ClaimedPart, ClaimGroup, FlushMode
from headrace.testing.randomness import FixedIdentity
from support.databases import Database, cloned, make_template
from support.rig import BOTH, Rig, one_loaded, rig
from support.waiting import until
from support.worlds import failure_of, flush_of


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


def _claimed(row: Any) -> ClaimedPart:
    return ClaimedPart(row["part"], row["backlog"], row["attempts"], row["takeovers"])


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
