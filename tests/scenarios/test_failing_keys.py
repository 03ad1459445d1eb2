"""Keys that fail: others go on, order is kept, nothing is lost, and the ledger says what happened.

Most of it runs an engine in this process; a key that kills its worker needs workers that may die.
"""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import App, Connection, Event, PartitionKey, RetryPolicy, Stream, Unrecoverable, on, projector, setup
from headrace.domain.engine_events import KeyFailed
from headrace.ports.work import FailureState
from support.commands import headrace
from support.databases import Database
from support.effects import AT_ONCE, NOTE, SEEN, ledger, seen
from support.fleet import fleet
from support.invariants import assert_sound
from support.scenes import append, execute, opened, rows, serving, until_value, value
from support.waiting import until

# ---------------------------------------------------------------------------------------------- backing off and parking


async def test_a_backoff_is_stored_and_survives_a_restart(database: Database) -> None:
    """L63: what a key waits for is in the database: another worker neither tries it earlier nor forgets a try."""
    calls: Counter[str] = Counter()
    slow = RetryPolicy(attempts=1, base=timedelta(hours=1), jitter=0, parked_base=timedelta(hours=2))

    @projector("backing", partition_by=Stream(), retry=slow)
    class Backing:
        @on()
        async def see(self, event: Event, key: PartitionKey) -> None:
            calls[key] += 1
            if key == "bad":
                raise ValueError("not today")

    app = App(Backing(), name="shop")
    async with opened(app, database) as scene:
        await scene.engine.setup()
        await append(database, ("bad", "T", {}), ("good", "T", {}))
        await scene.engine.run()
        assert await ledger(database) == [("bad", 1, "backing off", 1)]
    tried, went = calls["bad"], calls["good"]
    await append(database, ("good", "T", {}))
    async with serving(app, database) as scene:
        await until(lambda: calls["good"] > went, message="the good key goes on")
        assert calls["bad"] == tried
        left = await value(database, "select extract(epoch from next_retry_at - failed_at)::int from headrace.failures")
        assert left == 3600
        await execute(database, "update headrace.ready set due_at = clock_timestamp() where attempts > 0")
        failed = await scene.saw(KeyFailed, state=FailureState.PARKED)
    assert (failed.attempts, failed.delay) == (2, 7200)
    assert await ledger(database) == [("bad", 1, "parked", 2)]
    await assert_sound(database)


async def test_parked_keys_cost_one_row_and_no_calls(database: Database) -> None:
    """L54: whatever arrives for parked keys waits behind them: one failures row a key, no handler call for it."""
    calls: Counter[str] = Counter()

    @projector("parked", partition_by=Stream(), retry=AT_ONCE)
    class Parked:
        @on()
        async def see(self, event: Event, key: PartitionKey) -> None:
            calls[key] += 1
            if key.startswith("bad"):
                raise ValueError("never")

    keys = [f"bad{n}" for n in range(20)] + [f"good{n}" for n in range(60)]
    await append(database, *((key, "T", {}) for key in keys))
    async with opened(App(Parked(), name="shop"), database) as scene:
        await scene.engine.setup()
        await scene.engine.boot()
        tried = {key: calls[key] for key in keys if key.startswith("bad")}
        for _ in range(3):
            await append(database, *((key, "T", {}) for key in keys))
            result = await scene.engine.run()
            assert (result.processed, result.has_pending) == (60, False)
    assert {key: calls[key] for key in keys if key.startswith("bad")} == tried
    assert len(await ledger(database)) == 20
    assert await value(database, "select array_agg(distinct backlog) from headrace.ready") == [4]
    await assert_sound(database)


async def test_keys_that_fail_for_ever_are_tried_ever_more_seldom(database: Database) -> None:
    """L63: a hundred keys that never succeed cost a bounded number of calls: the budget, and one try in the group."""
    calls: Counter[str] = Counter()
    policy = RetryPolicy(attempts=2, base=timedelta(milliseconds=30), jitter=0.5, parked_base=timedelta(hours=1))

    @projector("for_ever", partition_by=Stream(), retry=policy)
    class ForEver:
        @on()
        async def see(self, event: Event, key: PartitionKey) -> None:
            calls[key] += 1
            raise ValueError("never")

    await append(database, *((f"k{n}", "T", {}) for n in range(100)))
    async with serving(App(ForEver(), name="shop"), database) as scene:
        await until_value(database, "select count(*) from headrace.failures where state = 'parked'", 100)
        assert len(scene.of(KeyFailed)) == 300
    assert 300 <= calls.total() <= 400
    await assert_sound(database)


async def test_unrecoverable_waits_for_a_person_at_once(database: Database) -> None:
    """L28: nothing behind a failed event of its key is handled; the stored position is that of the event before it."""

    @projector("doomed", partition_by=Stream())
    class Doomed:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(SEEN)

        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            if event.version == 50:
                raise Unrecoverable("no use")
            await db.execute(NOTE, key, event.version)

    positions = await append(database, *(("one", "T", {}) for _ in range(100)))
    async with opened(App(Doomed(), name="shop"), database) as scene:
        await scene.engine.setup()
        result = await scene.engine.boot()
    assert (result.processed, result.has_pending, len(result.errors)) == (49, False, 1)
    assert await ledger(database) == [("one", 50, "waiting", 1)]
    assert await seen(database, "one") == list(range(1, 50))
    assert await value(database, "select position from headrace.partitions where key = 'one'") == positions[48]
    await assert_sound(database)


async def test_the_one_key_of_an_unpartitioned_subscription_parks(database: Database) -> None:
    """The subscription stays active and stands before the event; after resume it goes on in global order."""
    fixed = False
    handled: list[int] = []

    @projector("whole", retry=AT_ONCE)
    class Whole:
        @on()
        async def see(self, event: Event) -> None:
            if event.data.get("bad") and not fixed:
                raise ValueError("no")
            handled.append(event.position)

    positions = await append(database, *((f"k{n}", "T", {"bad": n == 3}) for n in range(6)))
    app = App(Whole(), name="shop")
    async with opened(app, database) as scene:
        await scene.engine.setup()
        result = await scene.engine.boot()
        assert len(result.errors) == 1
        assert await ledger(database) == [("", 1, "waiting", 1)]
        assert await value(database, "select position from headrace.partitions") == positions[2]
        fixed = True
        assert headrace("failures", "resume", "whole", dsn=database.dsn).code == 0
        handled.clear()
        await scene.engine.boot()
        await scene.engine.run()
    assert handled == positions[3:]
    assert await value(database, "select status from headrace.subscriptions") == "active"
    await assert_sound(database)


# ----------------------------------------------------------------------------------------------- by hand, while running


async def test_resume_keeps_the_order_and_skip_drops_one_event(database: Database) -> None:
    """While a worker runs: list and show name the keys; resume hands over all that waited, in order; skip one less."""

    @projector("by_hand", partition_by=Stream(), retry=AT_ONCE)
    class ByHand:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(SEEN + "; create table fixed (key text)")

        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            fixed = await db.fetchval("select count(*) from fixed where key = $1", key)
            if key != "good" and event.version == 2 and not fixed:
                raise ValueError(f"{key} is not fixed")
            await db.execute(NOTE, key, event.version)

    keys = ["resumed", "skipped", "good"]
    async with serving(App(ByHand(), name="shop"), database) as scene:
        await append(database, *((key, "T", {}) for _ in range(3) for key in keys))
        await scene.saw(KeyFailed, key="resumed")
        await scene.saw(KeyFailed, key="skipped")
        await append(database, *((key, "T", {}) for _ in range(2) for key in keys))
        await until_value(database, "select count(*) from seen where key = 'good'", 5)
        listed = await asyncio.to_thread(headrace, "failures", "list", "-o", "json", dsn=database.dsn)
        assert [(f["key"], f["state"], f["waiting"]) for f in listed.json] == [
            ("resumed", "waiting", 4),
            ("skipped", "waiting", 4),
        ]
        shown = await asyncio.to_thread(headrace, "failures", "show", "by_hand#resumed", dsn=database.dsn)
        assert "resumed is not fixed" in shown.out
        await execute(database, "insert into fixed values ('resumed')")
        for verb, key in (("resume", "resumed"), ("skip", "skipped")):
            done = await asyncio.to_thread(headrace, "failures", verb, f"by_hand#{key}", dsn=database.dsn)
            assert done.code == 0, done
        await until_value(database, "select count(*) from seen where key <> 'good'", 9)
    assert await seen(database, "resumed") == [1, 2, 3, 4, 5]
    assert await seen(database, "skipped") == [1, 3, 4, 5]
    assert await ledger(database) == []
    assert await value(database, "select array_agg(verb order by id) from headrace.audit") == ["resume", "skip"]
    await assert_sound(database)


async def test_a_fixed_model_sees_the_stored_event(database: Database) -> None:
    """L62: a key parked for want of a field is handled after the fix from the event itself, not from a copy."""

    class Paid(BaseModel):
        cents: int
        currency: str

    class Fixed(BaseModel):
        __event_type__ = "Paid"
        cents: int
        currency: str = "EUR"

    def app(model: type[Any]) -> App:
        @projector("models", partition_by=Stream(), retry=AT_ONCE)
        class Models:
            @setup
            async def create(self, db: Connection) -> None:
                await db.execute("create table paid (cents int, currency text)")

            @on(model)
            async def see(self, event: Event, db: Connection) -> None:
                await db.execute("insert into paid values ($1, $2)", event.data.cents, event.data.currency)

        return App(Models(), name="shop")

    await append(database, ("a", "Paid", {"cents": 5}), ("b", "Paid", {"cents": 6, "currency": "CHF"}))
    async with opened(app(Paid), database) as scene:
        await scene.engine.setup()
        await scene.engine.boot()
    assert await ledger(database) == [("a", 1, "waiting", 1)]
    assert "currency" in await value(database, "select error from headrace.failures")
    assert headrace("failures", "resume", "models", dsn=database.dsn).code == 0
    async with opened(app(Fixed), database) as scene:
        await scene.engine.run()
    assert await rows(database, "select * from paid order by 1") == [(5, "EUR"), (6, "CHF")]
    assert await ledger(database) == []
    await assert_sound(database)


# --------------------------------------------------------------------------------------------------------- a deadly key


@pytest.mark.timeout(180)
async def test_a_key_that_kills_its_worker_is_set_aside(database: Database) -> None:
    """L24: a handler that ends its process: the key goes alone, event by event, from the second take-over and is parked
    at the fifth, before the deadly event and not before an earlier one; all other keys are handled exactly once.
    """
    keys = [f"k{n}" for n in range(8)]
    await append(database, *((key, "T", {"deadly": key == "k3" and n == 1}) for n in range(3) for key in keys))
    with fleet(database.dsn) as workers:
        variables = {"lease_seconds": "1", "log_level": "info"}

        async def parked() -> bool:
            alive = [worker for worker in workers.workers if worker.running]
            assert all(worker.wait() == 7 for worker in workers.workers if not worker.running)
            if len(alive) < 2:
                workers.start("deadly:app", variables=variables)
            return bool(await value(database, "select count(*) from headrace.failures where state = 'waiting'"))

        await until(parked, 150.0, "the deadly key is parked", every=0.05)
        await until_value(database, "select count(*) from seen where key <> 'k3'", 21)
        await until_value(database, "select count(*) from headrace.leases", 0)
        deaths = sum(not worker.running for worker in workers.workers)
    groups = await rows(database, "select takeovers, keys from deaths order by id")
    # Three deaths until the event before the deadly one is flushed, which begins the count anew.
    assert [takeovers for takeovers, _ in groups] == [0, 1, 0, 1, 3, 4, 5]
    assert deaths == 7
    assert {keys for takeovers, keys in groups if takeovers > 1} == {1}
    assert await ledger(database) == [("k3", 2, "waiting", 1)]
    error = await value(database, "select error from headrace.failures")
    assert "5 workers in a row" in error
    assert await seen(database, "k3") == [1]
    for key in keys:
        if key != "k3":
            assert await seen(database, key) == [1, 2, 3]
    await assert_sound(database)
