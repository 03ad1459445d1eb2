"""The ledger of failing keys at size, and beside workers: pages, transactions of a thousand, and who goes first."""

import asyncio

import pytest

from headrace.domain.errors import NotAllowed, NotFound
from headrace.domain.ids import Address, PartitionKey
from headrace.domain.subscription import Subscription
from headrace.ports.work import FailureState
from headrace.store import failures
from support.databases import Database
from support.rig import Rig, rig
from support.worlds import failure_of

FAIL = """
    insert into headrace.failures (part, run, position, state, attempts, class, error_type, error)
    select r.part, r.run, r.first_pos, 'waiting', 5, 'recoverable', 'ValueError', 'no'
      from headrace.ready r
"""


async def many_failing(r: Rig, keys: int) -> Subscription:
    """Return a subscription with so many keys that all wait for a person."""
    orders = await r.world.subscribe()
    await r.admin.execute(
        "insert into headrace.events (stream, version, type, data)"
        " select 'k' || g, 1, 'X', '{}' from generate_series(1, $1::int) g",
        keys,
    )
    while not (await r.world.route(orders, limit=5000)).complete:
        pass
    await r.admin.execute(FAIL)
    await r.admin.execute("update headrace.ready set attempts = 5, due_at = 'infinity'")
    return orders


async def test_list_goes_page_by_page(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every failure comes once and in order of position, while a page is all that is held at a time."""
    monkeypatch.setattr(failures, "PAGE_ROWS", 7)
    async with rig(database) as r:
        await many_failing(r, 50)
        sizes: list[str] = []
        r.pool.on_statement = sizes.append
        found = [failure.position async for failure in r.world.failures.list(states=[FailureState.WAITING])]
        r.pool.on_statement = None
        assert found == list(range(1, 51))
        # Which tables there are, then the pages of the one.
        assert len(sizes) == 2 + 8


async def test_resume_takes_a_thousand_at_a_time(database: Database) -> None:
    """Many keys are resumed in several short transactions, each audited key by key; asking again changes nothing."""
    async with rig(database) as r:
        orders = await many_failing(r, 2300)
        before = await r.admin.fetchval("select pg_current_xact_id()::text::bigint")
        resumed = await r.world.failures.resume(["orders"], None, "me", "fixed")
        assert (resumed.resumed, resumed.leased) == (2300, 0)
        writers = "select count(distinct xmin::text) from headrace.audit where xmin::text::bigint > $1"
        assert await r.admin.fetchval(writers, before) == 3
        assert (
            await r.admin.fetchval("select count(*) from headrace.audit where verb = 'resume' and who = 'me'") == 2300
        )
        assert (await r.world.failures.resume(["orders"], None, "me", "again")).resumed == 0
        assert len(await r.world.handle_all(orders)) == 2300
        assert await r.admin.fetchval("select count(*) from headrace.failures") == 0


async def test_resume_one_key_of_a_subscription(database: Database) -> None:
    """A key selects one failure; the others stay parked."""
    async with rig(database) as r:
        orders = await many_failing(r, 3)
        assert (await r.world.failures.resume(["orders"], "k2", "me", "")).resumed == 1
        assert await r.world.handle_all(orders) == [2]
        assert (await r.world.failures.resume(["nobody"], None, "me", "")).resumed == 0


async def test_claim_beside_a_resume_takes_the_rest(database: Database) -> None:
    """A claim passes over the keys that a resume has locked at that moment, and waits for nobody."""
    async with rig(database) as r, r.session() as resuming:
        orders = await many_failing(r, 2)
        await r.admin.execute("update headrace.ready set due_at = now()")
        part = await r.part(orders, "k1")
        transaction = resuming.transaction()
        await transaction.start()
        await resuming.execute(r.queries.failing_lock, [part])
        group = await r.world.claimed(orders)
        assert [claimed.part for claimed in group.parts] == [await r.part(orders, "k2")]
        await transaction.rollback()
        await r.world.work().release([group.lease])


async def test_skip_and_claim_decide_by_the_row_lock(database: Database) -> None:
    """Who locks the ready row first decides: a claim that was first makes the skip say that the key is being tried."""
    async with rig(database) as r, r.session() as claiming:
        orders = await many_failing(r, 1)
        part = await r.part(orders, "k1")
        transaction = claiming.transaction()
        await transaction.start()
        await claiming.execute("insert into headrace.leases (id, run, owner, worker, parts, events, expires_at)"
                               " values (1, $1, gen_random_uuid(), 'w', 1, 1, now())", orders.run)  # fmt: skip
        await claiming.execute("update headrace.ready set lease = 1 where part = $1", part)
        address = Address("orders", PartitionKey("k1"))
        skipping = asyncio.create_task(r.world.failures.skip(address, None, "me", ""))
        await r.somebody_blocked()
        await transaction.commit()
        with pytest.raises(NotAllowed, match="being tried now"):
            await skipping
        await r.world.work(2).take_over()
        assert await r.world.failures.skip(address, None, "me", "") == 1
        with pytest.raises(NotFound):
            await r.world.failures.skip(address, None, "me", "")


async def test_failure_of_a_resumed_key_starts_at_one(database: Database) -> None:
    """After a resume the budget is whole again: the next failure is the first, and first_failed_at is kept."""
    async with rig(database) as r:
        orders = await many_failing(r, 1)
        since = (await r.world.failures.show(Address("orders", PartitionKey("k1")))).first_failed_at
        await r.world.failures.resume(None, None, "me", "")
        group = await r.world.claimed(orders)
        assert group.parts[0].attempts == 0
        loaded = await r.world.load(group)
        assert await r.world.work().fail(failure_of(group, loaded.partitions[0])) == 1
        shown = await r.world.failures.show(Address("orders", PartitionKey("k1")))
        assert (shown.attempts, shown.first_failed_at) == (1, since)
        await r.world.work().release([group.lease])
