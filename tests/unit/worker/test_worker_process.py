"""The parts of the worker process that need no database: signals, vitals."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable

import pytest

from headrace.engine.results import Health
from headrace.runtime import signals
from headrace.runtime.signals import Shutdown, signals_to
from headrace.runtime.vitals import Vitals, longest_silence
from support.waiting import until


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def shutdown_for(stop: asyncio.Event, cancel: Callable[[], object], left: list[int]) -> Shutdown:
    """Return a shutdown that notes how it would leave the process."""
    return Shutdown(asyncio.get_running_loop(), stop, cancel, left.append)


async def test_first_signal_drains() -> None:
    """SIGTERM sets stop and nothing else: what is claimed is finished."""
    stop, cancelled, left = asyncio.Event(), asyncio.Event(), list[int]()
    with signals_to(shutdown_for(stop, cancelled.set, left)):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.wait(), 10)

    assert (cancelled.is_set(), left) == (False, [])


async def test_second_signal_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second signal, whichever, cancels the work; should that hang, the process leaves with 128 + its number."""
    monkeypatch.setattr(signals, "LAST_WORDS_SECONDS", 0.01)
    stop, cancelled, left = asyncio.Event(), asyncio.Event(), list[int]()
    with signals_to(shutdown_for(stop, cancelled.set, left)):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.wait(), 10)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(cancelled.wait(), 10)
        await until(lambda: left == [130])


async def test_a_blocked_loop_does_not_keep_a_second_signal_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that blocks the event loop: two signals end the process all the same."""
    monkeypatch.setattr(signals, "LAST_WORDS_SECONDS", 0.01)
    stop, left, gone = asyncio.Event(), list[int](), threading.Event()

    def leave(code: int) -> None:
        left.append(code)
        gone.set()

    with signals_to(Shutdown(asyncio.get_running_loop(), stop, lambda: None, leave)):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        # The loop stands still here, as under a handler that never awaits.
        assert gone.wait(10)

    assert left == [143]
    assert not stop.is_set()


async def test_signal_handlers_are_put_back() -> None:
    """After the block the process reacts to signals as it did before."""
    before = signal.getsignal(signal.SIGTERM)
    with signals_to(shutdown_for(asyncio.Event(), lambda: None, [])):
        assert signal.getsignal(signal.SIGTERM) is not before

    assert signal.getsignal(signal.SIGTERM) is before


def test_waiting_for_the_database_is_alive_and_not_ready() -> None:
    """At the start the database may be down: alive, not started, not ready, and it says what it waits for."""
    vitals = Vitals(60, Clock())
    vitals.waiting_for = "the database: connection refused"

    health = vitals.health()

    assert (health.alive, health.started, health.ready) == (True, False, False)
    assert health.reasons == ("waiting for the database: connection refused",)


def test_the_engines_word_is_passed_on() -> None:
    """While the loop beats, health is what the engine says."""
    vitals = Vitals(60, Clock())
    vitals.engine = lambda: Health(started=True, ready=True)

    assert vitals.health() == Health(started=True, ready=True)


@pytest.mark.parametrize(("silent", "alive"), [(59.0, True), (60.0, True), (61.0, False)])
def test_only_a_long_silence_of_the_loop_is_death(silent: float, alive: bool) -> None:
    """A handler that is slow within its time-out leaves the worker alive; a loop that stands much longer does not."""
    clock = Clock()
    vitals = Vitals(60, clock)
    vitals.engine = lambda: Health(started=True, ready=True)
    clock.now += silent

    health = vitals.health()

    assert (health.alive, health.ready) == (alive, alive)
    assert any("event loop has stood still" in reason for reason in health.reasons) is not alive


def test_the_limit_follows_the_longest_timeout() -> None:
    """A subscriber that declares an hour may block for an hour; nobody is declared dead within a minute."""
    assert longest_silence([], 15) == 60
    assert longest_silence([3600, 1], 15) == 7215


async def test_pulse_beats_while_the_loop_runs() -> None:
    """The task on the loop is what keeps the silence short."""
    clock = Clock()
    vitals = Vitals(60, clock)
    clock.now += 100
    task = asyncio.create_task(vitals.pulse())
    await until(lambda: vitals.health().alive)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
