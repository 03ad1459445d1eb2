"""What a subscriber may say to a failure: the hook swallows the event, Busy slows its key, stop leaves it there."""

from collections import Counter
from typing import Any

import pytest

from headrace import (
    App,
    Busy,
    Connection,
    Context,
    Event,
    PartitionKey,
    Stream,
    on,
    on_failed,
    projector,
    reactor,
    setup,
)
from headrace.domain.engine_events import KeyFailed, KeySlowed
from headrace.ports.work import FailureState
from support.databases import Database
from support.effects import AT_ONCE, NOTE, SEEN, ledger, seen
from support.invariants import assert_sound
from support.scenes import QUICK, append, execute, opened, rows, serving, until_value, value
from support.waiting import until


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
