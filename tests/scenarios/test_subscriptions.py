"""What subscriptions of every shape do in one engine: start, share its lanes, be held, forget idle keys, read others'
tables.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace import (
    App,
    Connection,
    Event,
    PartitionKey,
    Stream,
    batch,
    on,
    on_failed,
    projector,
    reactor,
    setup,
)
from headrace.domain.engine_events import Claimed, GroupAbandoned, IdleRemoved, KeyFailed, LeaseWasLost
from headrace.domain.ids import Run
from headrace.runtime.compose import EngineOptions
from headrace.store.holds import hold_key, unhold_key
from headrace.store.pool import Database as Pool
from support.databases import Database
from support.invariants import assert_sound
from support.noting import AT_ONCE, NOTE, SEEN, noting, versions
from support.scenes import append, opened, options, rows, serving, until_value, value
from support.waiting import block_for, until, work_for


def blocking(db: Connection) -> Any:
    """Return the connection as a `def` handler gets it: the same names, waited for."""
    return db


@asynccontextmanager
async def command_line(database: Database) -> AsyncIterator[Pool]:
    """Yield the pool of somebody who holds keys."""
    async with await Pool.open(database.dsn, max_size=2) as pool:
        yield pool


async def test_a_held_key_waits_and_the_others_go_on(database: Database) -> None:
    """A hold keeps one key, known or still unknown, however much arrives for it; afterwards all is handled, in order. A
    key in hand when the hold comes is not torn from its handler.
    """
    handling, go_on = asyncio.Event(), asyncio.Event()

    @projector("held", partition_by=Stream())
    class Held:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(SEEN)

        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await db.execute(NOTE, "held", key, event.version)
            if event.type == "Slow":
                handling.set()
                await go_on.wait()

    async with serving(App(Held(), name="shop"), database, options(lanes=2)) as scene, command_line(database) as pool:
        await until_value(database, "select status from headrace.subscriptions", "active")
        run = Run(await value(database, "select run from headrace.subscriptions"))
        await append(database, ("in hand", "Slow", {}))
        await handling.wait()
        for key in ("in hand", "not there yet", "there"):
            await hold_key(pool, run, PartitionKey(key))
        go_on.set()
        await until_value(database, "select count(*) from seen where key = 'in hand'", 1)
        keys = ("in hand", "not there yet", "there", "free")
        await append(database, *((key, "T", {}) for _ in range(3) for key in keys))
        await until_value(database, "select count(*) from seen where key = 'free'", 3)
        await until_value(database, "select coalesce(sum(backlog), 0) from headrace.ready where lease is null", 9)
        assert await value(database, "select count(*) from seen where key <> 'free'") == 1
        assert not scene.of(KeyFailed)
        assert not scene.of(GroupAbandoned)
        for key in keys[:2]:
            assert await unhold_key(pool, run, PartitionKey(key))
        await until_value(database, "select count(*) from seen where key in ('in hand', 'not there yet')", 7)
        assert await versions(database, "held", "there") == []
        assert await unhold_key(pool, run, PartitionKey("there"))
        assert not await unhold_key(pool, run, PartitionKey("there"))
        await until_value(database, "select count(*) from seen", 13)
    for key in keys:
        assert await versions(database, "held", key) == list(range(1, 5 if key == "in hand" else 4))
    await assert_sound(database)


async def test_the_whole_log_can_be_held(database: Database) -> None:
    """The one key of an unpartitioned subscription is held by its empty key, and goes on where it stood."""
    async with (
        serving(App(noting("whole", partition_by=None), name="shop"), database) as _,
        command_line(database) as pool,
    ):
        await append(database, ("a", "T", {}))
        await until_value(database, "select count(*) from seen", 1)
        run = Run(await value(database, "select run from headrace.subscriptions"))
        await hold_key(pool, run, PartitionKey(""))
        await append(database, ("a", "T", {}), ("a", "T", {}))
        await until_value(database, "select due_at = 'infinity' from headrace.ready where lease is null", True)
        assert await value(database, "select count(*) from seen") == 1
        await unhold_key(pool, run, PartitionKey(""))
        await until_value(database, "select count(*) from seen", 3)
    assert await versions(database, "whole", "") == [1, 2, 3]
    await assert_sound(database)


# ---------------------------------------------------------------------------------------------------- idle keys, starts


async def test_idle_keys_go_and_come_back(database: Database) -> None:
    """PAR-14: a running worker removes keys that are idle for `remove_idle_after`, but none that is parked; the next
    event of a removed key makes it anew and is handled.
    """
    app = App(noting("idle", remove_idle_after=0.3), name="shop")
    async with serving(app, database) as scene:
        await append(database, ("a", "T", {}), ("b", "T", {}), ("parked", "Doomed", {}))
        await until_value(database, "select array_agg(key) from headrace.partitions", ["parked"])
        assert sum(event.partitions for event in scene.of(IdleRemoved)) == 2
        await append(database, ("a", "T", {}))
        await until_value(database, "select count(*) from seen where key = 'a'", 2)
        await until_value(database, "select array_agg(key) from headrace.partitions", ["parked"])
    assert await versions(database, "idle", "a") == [1, 2]
    await assert_sound(database)


async def test_start_positions(database: Database) -> None:
    """From the beginning, from now, from a position: each handles exactly what lies behind its start, partitioned or
    not; a worker's own start (`HEADRACE_START_FROM`) wins over what the code declares.
    """
    positions = await append(database, *(("a", "T", {}) for _ in range(6)))
    kinds: dict[str, dict[str, Any]] = {
        "beginning": {"start": "beginning"},
        "now": {"start": "now"},
        "position": {"start": positions[3]},
        "hole": {"start": positions[-1] + 1000},
    }
    subscribers = [
        noting(f"{name} {shape}", partition_by=partition_by, **declared)
        for name, declared in kinds.items()
        for shape, partition_by in (("keys", Stream()), ("log", None))
    ]
    async with serving(App(*subscribers, name="shop"), database, options(lanes=2)):
        await until_value(database, "select count(*) from headrace.subscriptions where status = 'active'", 8)
        await append(database, ("a", "T", {}), ("a", "T", {}))
        await until_value(database, "select count(*) from seen", 2 * (8 + 2 + 4 + 2))
    for shape, key in (("keys", "a"), ("log", "")):
        assert await versions(database, f"beginning {shape}", key) == [1, 2, 3, 4, 5, 6, 7, 8]
        assert await versions(database, f"now {shape}", key) == [7, 8]
        assert await versions(database, f"position {shape}", key) == [5, 6, 7, 8]
        assert await versions(database, f"hole {shape}", key) == [7, 8]
    async with opened(App(noting("told"), name="other"), database, EngineOptions(start_from=positions[4])) as scene:  # type: ignore[arg-type]
        await scene.engine.setup()
        await scene.engine.boot()
    assert await versions(database, "told", "a") == [6, 7, 8]
    await assert_sound(database)


# --------------------------------------------------------------------------------------------------- many in one engine


async def test_several_subscriptions_share_the_lanes(database: Database, scale: float) -> None:
    """Projectors, a batch, whole logs and a reactor in one engine with four lanes: each handles everything once and in
    order; one that is slow keeps no other from its end.
    """
    effects: Counter[str] = Counter()
    order: list[str] = []

    @projector("batched", partition_by=Stream())
    class Batched:
        @batch()
        async def fold(self, events: list[Event], db: Connection) -> None:
            await db.executemany(NOTE, [("batched", event.key, event.version) for event in events])

    @reactor("reacting", partition_by=Stream(), start="beginning", concurrency=4)
    class Reacting:
        @on()
        async def act(self, event: Event, key: PartitionKey) -> None:
            assert effects[key] == event.version - 1
            effects[key] = event.version

    @projector("slow", partition_by=Stream())
    class Slow:
        @on()
        async def crawl(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await work_for(0.05)
            await db.execute(NOTE, "slow", key, event.version)

    fast = [noting(f"fast {number}") for number in range(2)]
    whole = [noting(f"whole {number}", partition_by=None) for number in range(2)]
    keys = [f"k{number}" for number in range(20)]
    await append(database, *((key, "T", {}) for _ in range(5) for key in keys))
    app = App(*fast, *whole, Batched(), Reacting(), Slow(), name="shop")
    async with serving(app, database, options(lanes=4)) as scene:

        async def note_end(name: str) -> None:
            await until_value(database, f"select count(*) from seen where name = '{name}'", 100)
            order.append(name)

        async with asyncio.TaskGroup() as tasks:
            for name in ("fast 0", "fast 1", "whole 0", "whole 1", "batched", "slow"):
                tasks.create_task(note_end(name))
            tasks.create_task(until(lambda: effects.total() == 100, 60.0, "the reactor has reacted"))
        assert {event.lane for event in scene.of(Claimed)} == {0, 1, 2, 3}
    assert order[-1] == "slow"
    for key in keys:
        for name in ("fast 0", "fast 1", "batched", "slow"):
            assert await versions(database, name, key) == [1, 2, 3, 4, 5]
    for name in ("whole 0", "whole 1"):
        assert await versions(database, name, "") == [version for version in range(1, 6) for _ in keys]
    await assert_sound(database)


async def test_what_others_have_in_hand_is_told(database: Database) -> None:
    """A run beside another engine that has every key in hand does nothing, and says so: all that is left is locked."""
    handling, go_on = asyncio.Event(), asyncio.Event()

    @projector("locked", partition_by=Stream())
    class Locked:
        @on()
        async def see(self, event: Event) -> None:
            handling.set()
            await go_on.wait()

    app = App(Locked(), name="shop")
    async with opened(app, database) as scene:
        await scene.engine.setup()
    await append(database, ("a", "T", {}), ("a", "T", {}))
    async with serving(app, database), opened(app, database) as second:
        await handling.wait()
        result = await second.engine.run()
        assert (result.processed, result.has_pending, result.all_locked) == (0, True, True)
        go_on.set()
        await second.engine.wait_for("locked", timeout=30)
        result = await second.engine.run()
        assert (result.processed, result.has_pending, result.all_locked) == (0, False, False)
    await assert_sound(database)


@pytest.mark.parametrize("kind", [projector, reactor])
async def test_a_handler_longer_than_the_lease_keeps_it(database: Database, kind: Any) -> None:
    """L34: a lease of 1 s, a handler of 2.5 s within its time-out, a second worker that waits for the key: the lease is
    renewed, also while a handler blocks the loop, and each event is handled once.
    """
    calls: Counter[str] = Counter()

    @kind("longer", partition_by=Stream(), start="beginning", timeout=20)
    class Longer:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(SEEN)

        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            calls[key] += 1
            if key == "blocks":
                block_for(2.5)
            else:
                await work_for(2.5)
            await db.execute(NOTE, "longer", key, event.version)

    await append(database, ("waits", "T", {}), ("blocks", "T", {}))
    app = App(Longer(), name="shop")
    short = options(lease_seconds=1)
    async with serving(app, database, short) as first, serving(app, database, short) as second:
        await until_value(database, "select count(*) >= 2 from seen", True)
        await until_value(database, "select count(*) from headrace.leases", 0)
    assert not first.of(LeaseWasLost)
    assert not second.of(LeaseWasLost)
    assert calls == {"waits": 1, "blocks": 1}
    await assert_sound(database)


async def test_plain_functions_do_what_coroutines_do(database: Database) -> None:
    """`def` handlers of every role, with the same calls on the same transaction, blocking: effects, order, failures."""

    @projector("plain", partition_by=Stream(), retry=AT_ONCE)
    class Plain:
        @setup
        def create(self, db: Connection) -> None:
            blocking(db).execute(SEEN)
            blocking(db).execute("create table given_up (key text, error text)")

        @on("One")
        def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            calls = blocking(db)
            before = calls.fetchval("select coalesce(max(version), 0) from seen where name = 'plain' and key = $1", key)
            if before != event.version - 1:
                raise AssertionError(f"{key} is at {before}")
            row = calls.fetchrow("select $1::int + 1 as next", before)
            calls.executemany(NOTE, [("plain", key, row["next"])])
            calls.defer("update seen set version = version where key = $1", key)
            assert len(calls.fetch("select * from seen where name = 'plain' and key = $1", key)) == event.version

        @on("Bad")
        def fail(self, event: Event, db: Connection) -> None:
            blocking(db).execute(NOTE, "plain", "never", 0)
            raise ValueError("no")

        @on_failed
        def give_up(self, event: Event, error: BaseException, db: Connection) -> None:
            blocking(db).execute("insert into given_up values ($1, $2)", event.key, str(error))

    @projector("folded", partition_by=Stream())
    class Folded:
        @batch()
        def fold(self, events: list[Event], db: Connection) -> None:
            blocking(db).executemany(NOTE, [("folded", event.key, event.version) for event in events])

    effects: list[tuple[str, int]] = []

    @reactor("acting", partition_by=Stream(), start="beginning", concurrency=3)
    class Acting:
        @on()
        def act(self, event: Event, key: PartitionKey) -> None:
            block_for(0.01)
            effects.append((key, event.version))

    kinds = ["One", "One", "Bad", "Other"]
    await append(database, *((f"k{n}", kind, {}) for kind in kinds for n in range(4)))
    async with opened(App(Plain(), Folded(), Acting(), name="shop"), database, options(lanes=2)) as scene:
        await scene.engine.setup()
        result = await scene.engine.boot()
        assert (result.processed, result.errors) == (44, ())
    for n in range(4):
        assert await versions(database, "plain", f"k{n}") == [1, 2]
        assert await versions(database, "folded", f"k{n}") == [1, 2, 3, 4]
        assert [version for key, version in effects if key == f"k{n}"] == [1, 2, 3, 4]
    assert await rows(database, "select * from given_up order by 1") == [(f"k{n}", "no") for n in range(4)]
    await assert_sound(database)
