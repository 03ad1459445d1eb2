"""Who is to blame: an error is charged to the event that made it, whenever it shows; the others are exact.

In a group, in a batch, over time, in a deferred statement, at the commit, or caught by the handler itself.
"""

import pytest

from headrace import App, Connection, Event, PartitionKey, Stream, batch, on, projector, setup
from headrace.domain.engine_events import GroupRolledBack, KeyFailed
from headrace.ports.work import FailureState
from support.databases import Database
from support.effects import AT_ONCE, NOTE, SEEN, ledger, seen
from support.invariants import assert_sound
from support.scenes import QUICK, append, opened, options, serving, until_value, value
from support.waiting import block_for, work_for


class Witness:
    """What most subscribers here are: they note in one table what they have seen."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the table."""
        await db.execute(SEEN)


async def booted(subscriber: object, database: Database) -> None:
    """Let a subscriber handle what is in the log, with nobody to try again what fails."""
    async with opened(App(subscriber, name="shop"), database) as scene:
        await scene.engine.setup()
        await scene.engine.boot()


async def test_one_bad_key_costs_the_others_of_its_group_nothing(database: Database) -> None:
    """The group is rolled back and done one by one: thirty keys are exact, the bad one alone is charged."""

    @projector("grouped", partition_by=Stream(), retry=QUICK)
    class Grouped(Witness):
        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await db.execute(NOTE, key, event.version)
            if key == "k7" and event.version == 2:
                raise ValueError("the second one is bad")

    await append(database, *((f"k{n % 30}", "T", {}) for n in range(90)))
    async with serving(App(Grouped(), name="shop"), database) as scene:
        await scene.saw(KeyFailed, state=FailureState.PARKED)
        await scene.engine.wait_for("grouped", key="k0", timeout=30)
        assert {failed.key for failed in scene.of(KeyFailed)} == {"k7"}
        assert scene.of(GroupRolledBack)
    assert await ledger(database) == [("k7", 2, "parked", 2)]
    assert await seen(database, "k7") == [1]
    for n in range(30):
        if n != 7:
            assert await seen(database, f"k{n}") == [1, 2, 3]
    await assert_sound(database)


async def test_poison_in_a_batch_is_found_alone(database: Database) -> None:
    """A batch over twelve keys that one event spoils is done again in small: that event's key alone is parked."""

    @projector("batched", partition_by=Stream(), retry=AT_ONCE)
    class Batched(Witness):
        @batch()
        async def see(self, events: list[Event], db: Connection) -> None:
            await db.executemany(NOTE, [(event.key, event.version) for event in events])
            if any(event.data.get("poison") for event in events):
                raise ValueError("poison")

    await append(database, *((f"k{n % 12}", "T", {"poison": n == 29}) for n in range(60)))
    await booted(Batched(), database)
    assert await ledger(database) == [("k5", 3, "waiting", 1)]
    assert await seen(database, "k5") == [1, 2]
    for n in range(12):
        if n != 5:
            assert await seen(database, f"k{n}") == [1, 2, 3, 4, 5]
    await assert_sound(database)


@pytest.mark.parametrize("kind", ["async", "def", "statement", "def statement"])
async def test_a_handler_over_its_time_is_charged_and_told_of_timeout(database: Database, kind: str) -> None:
    """A handler longer than its time-out fails its event, and the error names `timeout=`; what came before stays."""

    @projector("slow_async", partition_by=Stream(), retry=AT_ONCE, timeout=0.4)
    class SlowAsync(Witness):
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
    await booted(subscriber, database)
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
    class Idling(Witness):
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
    await booted(Deferring(), database)
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
    await booted(Committing(), database)
    assert await ledger(database) == [("bad", 3, "waiting", 1)]
    assert await seen(database, "bad") == [1, 2]
    assert await seen(database, "good") == [1, 2, 3, 4, 5]
    assert "owned_owner_fkey" in await value(database, "select error from headrace.failures")
    await assert_sound(database)


async def test_an_error_that_a_handler_swallows_does_not_lose_the_event(database: Database) -> None:
    """A handler that catches the error of its own statement cannot commit: the event is charged, not lost."""

    @projector("swallowed", partition_by=Stream(), retry=AT_ONCE)
    class Swallowed(Witness):
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
