"""Keys that fail: others go on, order is kept, nothing is lost, and the ledger says what happened.

Most of it runs an engine in this process; a key that kills its worker needs workers that may die.
"""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import (
    App,
    Busy,
    Connection,
    Context,
    Event,
    PartitionKey,
    RetryPolicy,
    Stream,
    Unrecoverable,
    batch,
    on,
    on_failed,
    projector,
    reactor,
    setup,
)
from headrace.domain.engine_events import GroupRolledBack, KeyFailed, KeySlowed
from headrace.ports.work import FailureState
from support.commands import headrace
from support.databases import Database
from support.fleet import fleet
from support.invariants import assert_sound
from support.scenes import QUICK, append, execute, opened, options, rows, serving, until_value, value
from support.waiting import block_for, until, work_for

SEEN = "create table if not exists seen (place bigint generated always as identity, key text, version int)"
NOTE = "insert into seen (key, version) values ($1, $2)"
AT_ONCE = RetryPolicy(attempts=0, parked_attempts=0)
"""No retry: a key that fails waits for a person."""


async def seen(database: Database, key: str) -> list[int]:
    """Return the versions of a key that have an effect, in the order of the effects."""
    return [row[0] for row in await rows(database, "select version from seen where key = $1 order by place", key)]


async def ledger(database: Database) -> list[tuple[Any, ...]]:
    """Return the failures: key, version of the failing event, state, attempts."""
    return await rows(
        database,
        "select p.key, e.version, f.state, f.attempts from headrace.failures f"
        " join headrace.partitions p on p.id = f.part join headrace.events e on e.position = f.position order by 1",
    )


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


async def test_one_bad_key_costs_the_others_of_its_group_nothing(database: Database) -> None:
    """The group is rolled back and done one by one: thirty keys are exact, the bad one alone is charged."""

    @projector("grouped", partition_by=Stream(), retry=QUICK)
    class Grouped:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(SEEN)

        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await db.execute(NOTE, key, event.version)
            if key == "k7" and event.version == 2:
                raise ValueError("the second one is bad")

    await append(database, *((f"k{n % 30}", "T", {}) for n in range(90)))
    async with opened(App(Grouped(), name="shop"), database) as scene:
        await scene.engine.setup()
        result = await scene.engine.boot()
        assert {error.key for error in result.errors} == {"k7"}
        assert scene.of(GroupRolledBack)
        await scene.saw(KeyFailed, state=FailureState.PARKED)
    assert await ledger(database) == [("k7", 2, "parked", 2)]
    assert await seen(database, "k7") == [1]
    for n in range(30):
        if n != 7:
            assert await seen(database, f"k{n}") == [1, 2, 3]
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


# -------------------------------------------------------------------------------------------------------- other endings


async def test_poison_in_a_batch_is_found_alone(database: Database) -> None:
    """A batch over twelve keys that one event spoils is done again in small: that event's key alone is parked."""

    @projector("batched", partition_by=Stream(), retry=AT_ONCE)
    class Batched:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(SEEN)

        @batch()
        async def see(self, events: list[Event], db: Connection) -> None:
            await db.executemany(NOTE, [(event.key, event.version) for event in events])
            if any(event.data.get("poison") for event in events):
                raise ValueError("poison")

    await append(database, *((f"k{n % 12}", "T", {"poison": n == 29}) for n in range(60)))
    async with opened(App(Batched(), name="shop"), database) as scene:
        await scene.engine.setup()
        await scene.engine.boot()
    assert await ledger(database) == [("k5", 3, "waiting", 1)]
    assert await seen(database, "k5") == [1, 2]
    for n in range(12):
        if n != 5:
            assert await seen(database, f"k{n}") == [1, 2, 3, 4, 5]
    await assert_sound(database)


@pytest.mark.parametrize("raises", [False, True])
async def test_on_failed_may_swallow_the_event(database: Database, raises: bool) -> None:
    """When the budget is spent, the hook is asked: what it writes stays and the key goes on; if it raises, it parks."""

    @projector("swallowing", partition_by=Stream(), retry=QUICK)
    class Swallowing:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(SEEN + "; create table given_up (version int, error text)")

        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await db.execute(NOTE, key, event.version)
            if event.version == 2:
                raise ValueError("the handler's own error")

        @on_failed
        async def give_up(self, event: Event, error: BaseException, db: Connection) -> None:
            await db.execute("insert into given_up values ($1, $2)", event.version, str(error))
            if raises:
                raise RuntimeError("the hook's error")

    await append(database, *(("one", "T", {}) for _ in range(4)))
    async with serving(App(Swallowing(), name="shop"), database) as scene:
        await scene.saw(KeyFailed, state=FailureState.BACKING_OFF)
        if raises:
            await scene.saw(KeyFailed, state=FailureState.PARKED)
        else:
            await until_value(database, "select count(*) from seen", 3)
    if raises:
        assert await ledger(database) == [("one", 2, "parked", 2)]
        error = await value(database, "select error from headrace.failures")
        assert "the handler's own error" in error
        assert "the hook's error" in error
        assert await value(database, "select count(*) from given_up") == 0
    else:
        assert await seen(database, "one") == [1, 3, 4]
        assert await rows(database, "select * from given_up") == [(2, "the handler's own error")]
        assert await ledger(database) == []
    await assert_sound(database)


async def test_a_reactor_may_swallow_too(database: Database) -> None:
    """The failed hook of a reactor: returning counts the event as handled, the key goes on behind it."""
    calls: list[int] = []
    given_up: list[int] = []

    @reactor("reacting", partition_by=Stream(), start="beginning", retry=QUICK)
    class Reacting:
        @on()
        async def act(self, event: Event) -> None:
            calls.append(event.version)
            if event.version == 2:
                raise ValueError("no")

        @on_failed
        async def give_up(self, event: Event, error: BaseException) -> None:
            given_up.append(event.version)

    await append(database, *(("one", "T", {}) for _ in range(4)))
    async with serving(App(Reacting(), name="shop"), database):
        await until(lambda: 4 in calls, message="the last event is handled")
    assert (calls, given_up) == ([1, 2, 2, 3, 4], [2])
    assert await ledger(database) == []
    await assert_sound(database)


async def test_what_the_failed_hook_of_a_reactor_raises_is_kept(database: Database) -> None:
    """A hook that raises parks the key with the handler's own error, and its own beside it."""

    @reactor("reacting", partition_by=Stream(), start="beginning", retry=AT_ONCE)
    class Reacting:
        @on()
        async def act(self, event: Event) -> None:
            raise ValueError("the handler's own error")

        @on_failed
        async def give_up(self, event: Event) -> None:
            raise RuntimeError("the hook's error")

    await append(database, ("one", "T", {}))
    async with opened(App(Reacting(), name="shop"), database) as scene:
        await scene.engine.setup()
        result = await scene.engine.boot()
    assert len(result.errors) == 1
    error = await value(database, "select error from headrace.failures where error_type = 'ValueError'")
    assert "the handler's own error" in error
    assert "the hook's error" in error
    await assert_sound(database)


@pytest.mark.parametrize("kind", [projector, reactor])
async def test_busy_slows_its_key_and_is_no_failure(database: Database, kind: Any) -> None:
    """Busy gives the same event again later, without a failures row or a counted attempt; other keys go on."""
    calls: Counter[str] = Counter()
    attempts: set[int] = set()
    handled: list[str] = []

    @kind("busy", partition_by=Stream(), start="beginning", retry=AT_ONCE)
    class Slowed:
        @on()
        async def see(self, event: Event, key: PartitionKey, context: Context) -> None:
            calls[key] += 1
            attempts.add(context.attempt)
            if key == "busy" and event.version == 2 and calls[key] < 6:
                raise Busy(0.1, "the other side wants a pause")
            handled.append(f"{key} {event.version}")

    await append(database, *((key, "T", {}) for _ in range(3) for key in ("busy", "other")))
    async with serving(App(Slowed(), name="shop"), database) as scene:
        await until(lambda: "busy 3" in handled, message="the busy key comes to its end")
        slowed = scene.of(KeySlowed)
    assert {(event.key, event.reason) for event in slowed} == {("busy", "the other side wants a pause")}
    assert attempts == {1}
    assert handled[-2:] == ["busy 2", "busy 3"]
    assert "other 3" in handled
    assert await ledger(database) == []
    await assert_sound(database)


async def test_stop_leaves_the_key_before_its_event(database: Database) -> None:
    """Context.stop(): what the handler wrote for the event is undone, the key waits before it, the others go on."""

    @projector("stopping", partition_by=Stream())
    class Stopping:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(SEEN + "; create table may_go_on ()")

        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection, context: Context) -> None:
            await db.execute(NOTE, key, event.version)
            go_on = await db.fetchval("select count(*) from may_go_on")
            if key == "stops" and event.version == 2 and not go_on:
                context.stop()

    await append(database, *((key, "T", {}) for _ in range(3) for key in ("stops", "goes")))
    async with serving(App(Stopping(), name="shop"), database) as scene:
        await scene.saw(KeySlowed, key="stops", reason="the handler said stop")
        await until_value(database, "select count(*) from seen where key = 'goes'", 3)
        assert await seen(database, "stops") == [1]
        await execute(database, "insert into may_go_on default values")
        await until_value(database, "select count(*) from seen", 6)
    assert await seen(database, "stops") == [1, 2, 3]
    assert await ledger(database) == []
    await assert_sound(database)


# -------------------------------------------------------------------------------------------- time, and who is to blame


@pytest.mark.parametrize("kind", ["async", "def", "statement", "def statement"])
async def test_a_handler_over_its_time_is_charged_and_told_of_timeout(database: Database, kind: str) -> None:
    """A handler longer than its time-out fails its event, and the error names `timeout=`; what came before stays."""

    @projector("slow_async", partition_by=Stream(), retry=AT_ONCE, timeout=0.4)
    class SlowAsync:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(SEEN)

        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await db.execute(NOTE, key, event.version)
            if event.data.get("slow"):
                if kind == "statement":
                    await db.execute("select pg_sleep(5)")
                await work_for(5)

    @projector("slow_def", partition_by=Stream(), retry=AT_ONCE, timeout=0.4)
    class SlowDef:
        @setup
        def create(self, db: Connection) -> None:
            db.execute(SEEN)  # type: ignore[unused-coroutine]

        @on()
        def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            db.execute(NOTE, key, event.version)  # type: ignore[unused-coroutine]
            if event.data.get("slow"):
                if "statement" in kind:
                    db.execute("select pg_sleep(1.5)")  # type: ignore[unused-coroutine]
                block_for(1.5)
                db.execute(NOTE, key, -1)  # type: ignore[unused-coroutine]

    subscriber = SlowDef() if kind.startswith("def") else SlowAsync()
    events = [(key, "T", {"slow": key == "slow" and n == 1}) for n in range(3) for key in ("slow", "ok")]
    await append(database, *events)
    async with opened(App(subscriber, name="shop"), database) as scene:
        await scene.engine.setup()
        await scene.engine.boot()
    assert await ledger(database) == [("slow", 2, "waiting", 1)]
    assert "timeout=" in await value(database, "select error from headrace.failures")
    assert await seen(database, "slow") == [1]
    assert await seen(database, "ok") == [1, 2, 3]
    await assert_sound(database)


async def test_a_transaction_that_idles_too_long_is_cut_and_charged(database: Database) -> None:
    """L51: a handler that computes for longer than lease and time-out between two statements loses its session: the
    key is charged at that event with an error that names `timeout=`, nothing half-applied, other keys go on.
    """

    @projector("idling", partition_by=Stream(), retry=AT_ONCE, timeout=1)
    class Idling:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(SEEN)

        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await db.execute(NOTE, key, event.version)
            if event.data.get("computes"):
                block_for(1.6)
                await db.execute(NOTE, key, -1)

    keys = ("computes", "other")
    await append(database, *((key, "T", {"computes": key == "computes" and n == 1}) for n in range(3) for key in keys))
    async with serving(App(Idling(), name="shop"), database, options(lease_seconds=1)) as scene:
        failed = await scene.saw(KeyFailed)
        await until_value(database, "select count(*) from seen where key = 'other'", 3)
    assert "timeout=" in failed.error
    assert await ledger(database) == [("computes", 2, "waiting", 1)]
    assert await seen(database, "computes") == [1]
    await assert_sound(database)


async def test_a_deferred_statement_is_charged_to_its_event(database: Database) -> None:
    """The error of `defer` belongs to the event that deferred it, not to the one that was handled when it was sent."""

    @projector("deferring", partition_by=Stream(), retry=AT_ONCE)
    class Deferring:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(SEEN + "; alter table seen add check (version <> 3)")

        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            db.defer(NOTE, key, event.version)

    await append(database, *((f"k{n % 3}", "T", {}) for n in range(15)))
    await append(database, *(("short", "T", {}) for _ in range(2)))
    async with opened(App(Deferring(), name="shop"), database) as scene:
        await scene.engine.setup()
        await scene.engine.boot()
    assert await ledger(database) == [(f"k{n}", 3, "waiting", 1) for n in range(3)]
    for n in range(3):
        assert await seen(database, f"k{n}") == [1, 2]
    assert await seen(database, "short") == [1, 2]
    assert "seen_version_check" in await value(database, "select min(error) from headrace.failures")
    await assert_sound(database)


async def test_a_constraint_checked_at_the_commit_is_charged_to_its_event(database: Database) -> None:
    """A deferred constraint fails at the commit, after every handler: the event that breaks it is found still."""

    @projector("committing", partition_by=Stream(), retry=AT_ONCE)
    class Committing:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(SEEN)
            await db.execute(
                "create table owners (name text primary key); insert into owners values ('there');"
                "create table owned (key text, version int, owner text references owners deferrable initially deferred)"
            )

        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            owner = "missing" if event.data.get("bad") else "there"
            await db.execute("insert into owned values ($1, $2, $3)", key, event.version, owner)
            await db.execute(NOTE, key, event.version)

    events = [(key, "T", {"bad": key == "bad" and n == 2}) for n in range(5) for key in ("bad", "good")]
    await append(database, *events)
    async with opened(App(Committing(), name="shop"), database) as scene:
        await scene.engine.setup()
        await scene.engine.boot()
    assert await ledger(database) == [("bad", 3, "waiting", 1)]
    assert await seen(database, "bad") == [1, 2]
    assert await seen(database, "good") == [1, 2, 3, 4, 5]
    assert "owned_owner_fkey" in await value(database, "select error from headrace.failures")
    await assert_sound(database)


async def test_an_error_that_a_handler_swallows_does_not_lose_the_event(database: Database) -> None:
    """A handler that catches the error of its own statement cannot commit: the event is charged, not lost."""

    @projector("swallowed", partition_by=Stream(), retry=AT_ONCE)
    class Swallowed:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(SEEN)

        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await db.execute(NOTE, key, event.version)
            if key == "bad" and event.version == 2:
                try:
                    await db.execute("select 1 / 0")
                except Exception:  # noqa: BLE001 - the fault of this handler
                    return

    await append(database, *((key, "T", {}) for _ in range(3) for key in ("bad", "good")))
    async with serving(App(Swallowed(), name="shop"), database) as scene:
        await until_value(database, "select count(*) from seen where key = 'good'", 3)
        await until_value(database, "select count(*) from headrace.failures", 1)
        del scene
    assert await ledger(database) == [("bad", 2, "waiting", 1)]
    assert await seen(database, "bad") == [1]
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
    assert [takeovers for takeovers, _ in groups] == [0, 1, 0, 1, 2, 3, 4]
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
