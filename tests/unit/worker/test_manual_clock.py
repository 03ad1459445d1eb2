"""Time by hand, seeded chance, and the observer that remembers."""

import asyncio
import threading

import pytest

from headrace.domain.engine_events import EventsVanished, KeysHeld, Routed
from headrace.domain.ids import Position
from headrace.testing.clock import EPOCH, ManualClock
from headrace.testing.observer import RecordingObserver
from headrace.testing.randomness import FixedIdentity, SeededRandomness


async def test_sleepers_wake_when_the_clock_gets_there() -> None:
    """A sleeper wakes at its time, not before, and in the order of times."""
    clock = ManualClock()
    woken: list[str] = []

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    tasks = [asyncio.create_task(sleep(name, seconds)) for name, seconds in (("late", 20), ("soon", 10), ("now", 0))]
    await clock.advance(9.5)
    assert woken == ["now"]
    assert clock.sleepers == 2
    await clock.advance(0.5)
    assert woken == ["now", "soon"]
    await clock.advance(100)
    assert woken == ["now", "soon", "late"]
    await asyncio.gather(*tasks)
    assert clock.monotonic() == 110
    assert (clock.now() - EPOCH).total_seconds() == 110


async def test_loop_goes_round_as_often_as_it_would() -> None:
    """Advancing goes from sleeper to sleeper: a loop with a pause of a second goes round once for each."""
    clock = ManualClock()
    rounds: list[float] = []

    async def loop() -> None:
        while True:
            await clock.sleep(1)
            rounds.append(clock.monotonic())

    task = asyncio.create_task(loop())
    await clock.advance(5)
    assert rounds == [1, 2, 3, 4, 5]
    clock.jump(5)
    await clock.turn()
    assert rounds == [1, 2, 3, 4, 5, 10]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert clock.sleepers == 0


async def test_cancelled_sleeper_keeps_nobody_waiting() -> None:
    """A sleeper that was cancelled is forgotten."""
    clock = ManualClock()
    task = asyncio.create_task(clock.sleep(5))
    await clock.turn()
    task.cancel()
    await clock.advance(10)
    assert task.cancelled()
    assert clock.monotonic() == 10


def test_chance_is_the_same_in_every_run() -> None:
    """Two of one seed draw the same; lease ids are 63-bit and never 0."""
    one, two, other = SeededRandomness(3), SeededRandomness(3), SeededRandomness(4)
    drawn = [one.lease_id() for _ in range(100)]
    assert drawn == [two.lease_id() for _ in range(100)]
    assert drawn != [other.lease_id() for _ in range(100)]
    assert len(set(drawn)) == 100
    assert all(0 < lease < 2**63 for lease in drawn)
    assert 2.0 <= one.uniform(2.0, 3.0) <= 3.0


def test_identity_is_its_number() -> None:
    """Workers of a test are told apart by their numbers."""
    assert FixedIdentity(1).id != FixedIdentity(2).id
    assert (FixedIdentity(2).name, FixedIdentity(2, "host:7").name) == ("worker-2", "host:7")


async def test_observer_finds_what_was_and_waits_for_what_comes() -> None:
    """A past fact is found at once; a coming one is waited for, from another thread too."""
    observer = RecordingObserver()
    observer.notice(KeysHeld("orders", 1))
    found = await observer.wait_for(lambda event: isinstance(event, KeysHeld))
    assert found == KeysHeld("orders", 1)

    waiting = asyncio.create_task(observer.wait_for(lambda event: isinstance(event, Routed)))
    await asyncio.sleep(0)
    thread = threading.Thread(target=observer.notice, args=(Routed("bills", 3, 1, Position(9)),))
    thread.start()
    assert await waiting == Routed("bills", 3, 1, Position(9))
    thread.join()
    assert observer.of(Routed) == observer.of(Routed, "bills") == [Routed("bills", 3, 1, Position(9))]
    assert observer.of(Routed, "orders") == []


async def test_observer_says_what_it_saw_when_it_waits_in_vain() -> None:
    """The message of a time-out names the last facts."""
    observer = RecordingObserver()
    observer.notice(KeysHeld("orders", 4))
    with pytest.raises(TimeoutError, match="KeysHeld"):
        await observer.wait_for(lambda event: isinstance(event, EventsVanished), timeout=0.01)
