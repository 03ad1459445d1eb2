"""Handlers that do what nobody expects of them: their key pays for it, the lane and the other keys do not."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from headrace import App, Connection, Event, PartitionKey, Stream, Unavailable, on, projector, reactor
from headrace.domain.engine_events import DatabaseLost, GroupAbandoned, KeySlowed
from support.databases import Database
from support.effects import AT_ONCE, NOTE, SEEN, ledger, seen
from support.invariants import assert_sound
from support.scenes import append, execute, serving, until_value, value


class UnprintableError(Exception):
    """An error that cannot be printed."""

    def __str__(self) -> str:
        """Raise."""
        raise RuntimeError("no text")


def recurse(depth: int = 0) -> int:
    """Never return."""
    return recurse(depth + 1) + 1


async def cancelled() -> None:
    """Wait for a task that somebody else has cancelled."""
    task = asyncio.create_task(asyncio.Event().wait())
    task.cancel()
    await task


async def two_at_once(db: Connection) -> None:
    """Send two statements at once on one connection."""
    await asyncio.gather(db.execute("select pg_sleep(0.05)"), db.execute("select pg_sleep(0.05)"))


def raising(error: BaseException) -> None:
    """Raise."""
    raise error


DEEDS: dict[str, Any] = {
    "unprintable": lambda _: raising(UnprintableError()),
    "unstorable text": lambda _: raising(ValueError("a\0b \ud800 \x1b[31m " + "x" * 1_000_000)),
    "recursion": lambda _: recurse(),
    "a group of errors": lambda _: raising(BaseExceptionGroup("many", [ValueError("one"), KeyError("two")])),
    "assertion": lambda _: raising(AssertionError()),
    "stop iteration": lambda _: raising(StopIteration()),
    "a cancelled task": lambda _: cancelled(),
    "cancelled itself": lambda _: raising(asyncio.CancelledError()),
    "a time-out of its own": lambda _: asyncio.wait_for(asyncio.Event().wait(), 0.01),
    "two statements at once": two_at_once,
}


@pytest.mark.parametrize("kind", [projector, reactor])
@pytest.mark.parametrize("deed", list(DEEDS))
async def test_whatever_a_handler_raises_parks_its_key(database: Database, deed: str, kind: Any) -> None:
    """Errors that cannot be printed or stored, cancellations, recursion: the key is parked with a text, the other keys
    of the group and the events before it are handled, and the lane goes on.
    """

    @kind("hostile", partition_by=Stream(), start="beginning", retry=AT_ONCE)
    class Hostile:
        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await db.execute(NOTE, key, event.version)
            if event.type == "Hostile":
                done = DEEDS[deed](db)
                if done is not None:
                    await done

    await execute(database, SEEN)
    await append(
        database, ("bad", "T", {}), ("good", "T", {}), ("bad", "Hostile", {}), ("good", "T", {}), ("bad", "T", {})
    )
    async with serving(App(Hostile(), name="shop"), database) as scene:
        await until_value(database, "select count(*) from headrace.failures", 1, 20)
        await append(database, ("good", "T", {}))
        await until_value(database, "select count(distinct version) from seen where key = 'good'", 3, 20)
        assert not scene.of(GroupAbandoned)
        assert not scene.of(DatabaseLost)
    assert await ledger(database) == [("bad", 2, "waiting", 1)]
    assert await value(database, "select length(error) between 5 and 9000 from headrace.failures")
    if kind is projector:
        assert await seen(database, "bad") == [1]
        assert await seen(database, "good") == [1, 2, 3]
    await assert_sound(database)


@pytest.mark.parametrize("kind", [projector, reactor])
@pytest.mark.parametrize("error", [Unavailable("their database is down"), ConnectionRefusedError(111, "refused")])
async def test_a_target_that_is_down_slows_its_key_alone(database: Database, kind: Any, error: Exception) -> None:
    """A handler whose own target does not answer: its key waits and is not charged; the other keys of its group go on,
    and the worker does not take its own database for lost.
    """
    calls: Counter[str] = Counter()
    handled: list[str] = []

    @kind("calling", partition_by=Stream(), start="beginning", retry=AT_ONCE)
    class Calling:
        @on()
        async def see(self, event: Event, key: PartitionKey) -> None:
            calls[key] += 1
            if key == "far":
                raise error
            handled.append(f"{key} {event.version}")

    await append(database, *((key, "T", {}) for _ in range(2) for key in ("far", "near", "nearer")))
    async with serving(App(Calling(), name="shop"), database) as scene:
        await scene.saw(KeySlowed, key="far")
        await until_value(database, "select count(*) from headrace.ready", 1)
        assert not scene.of(DatabaseLost)
    assert {"near 2", "nearer 2"} <= set(handled)
    assert calls["far"] <= 2
    assert await value(database, "select due_at > clock_timestamp() + interval '3 s' from headrace.ready")
    assert await ledger(database) == []
    await assert_sound(database)
