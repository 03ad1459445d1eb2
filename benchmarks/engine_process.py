"""One worker in a process of its own: the real engine with an observer that notes times.

Started by `benchmarks.worker.start`; talks JSON lines on standard output and stops when its standard input is closed.
Times are those of the system's monotonic clock, which all processes of a machine share.
"""

import asyncio
import cProfile
import json
import resource
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any

from benchmarks.loop import run
from benchmarks.statement_kinds import HORIZON, cause_of, kind_of
from benchmarks.straight_line import cpu_seconds
from benchmarks.subscribers import APPS, HANDLED
from benchmarks.worker import Notes, Order
from headrace.domain.engine_events import (
    Claimed,
    DatabaseLost,
    EngineEvent,
    EventsVanished,
    Flushed,
    GroupAbandoned,
    GroupRolledBack,
    KeyFailed,
    KeySlowed,
    LeaseWasLost,
    MainStopped,
    Routed,
    TookOver,
)
from headrace.engine.tuning import Tuning
from headrace.runtime.compose import EngineOptions, open_engine

TROUBLE = (
    DatabaseLost,
    EventsVanished,
    GroupAbandoned,
    GroupRolledBack,
    KeyFailed,
    KeySlowed,
    LeaseWasLost,
    MainStopped,
    TookOver,
)
"""Facts that have no place in a measurement."""


@dataclass(slots=True)
class NotingObserver:
    """Notes when the engine routed, claimed and flushed, and what went wrong; says when the last event is flushed."""

    notes: Notes
    stop_after: int
    stop: asyncio.Event
    flushed: int = 0

    def notice(self, event: EngineEvent) -> None:
        """Take one fact."""
        now = time.monotonic()
        match event:
            case Claimed(partitions=partitions, backlog=backlog):
                self.notes.claims.append((now, partitions, backlog))
            case Flushed(events=events, partitions=partitions):
                self.notes.flushes.append((now, events, partitions))
                self.notes.cpu_seconds = cpu_seconds()
                self.flushed += events
                if 0 < self.stop_after <= self.flushed:
                    self.stop.set()
                self.notes.visible += [(position, now) for position in HANDLED]
                HANDLED.clear()
            case Routed(events=events):
                self.notes.routed.append((now, events))
            case _ if isinstance(event, TROUBLE):
                self.notes.trouble.append(f"{now - self.notes.started:.2f} s: {event}")


async def work(order: Order) -> Notes:
    """Be a worker until told to stop, or until the ordered number of events is flushed."""
    notes, stop = Notes(), asyncio.Event()
    statements: list[tuple[float, str]] = []
    keeping: list[tuple[float, str]] = []
    options = EngineOptions(
        lanes=order.lanes,
        tuning=Tuning("benchmark", route_batch=order.route_batch),
        on_statement=lambda text: statements.append((time.monotonic(), text)),
        on_clock_statement=lambda text: keeping.append((time.monotonic(), text)),
    )
    observer = NotingObserver(notes, order.stop_after, stop)
    async with open_engine(APPS[order.app], order.dsn, options, observer) as engine:
        for error in (await engine.setup()).errors:
            raise RuntimeError(str(error))
        _stop_at_end_of_input(stop)
        notes.started, cpu = time.monotonic(), cpu_seconds()
        telling = asyncio.create_task(_tell_when_ready(engine), name="ready")
        await engine.serve(stop)
        notes.ended = time.monotonic()
        telling.cancel()
    # Without any flush the measured time is all of it.
    notes.cpu_seconds = (notes.cpu_seconds or cpu_seconds()) - cpu
    notes.resident_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    _count(notes, statements, keeping)
    return notes


def _count(notes: Notes, statements: list[tuple[float, str]], keeping: list[tuple[float, str]]) -> None:
    """Count the statements of the measured time by kind and cause; ``keeping`` are those of the keeper's thread."""
    until = notes.flushes[-1][0] if notes.flushes else notes.ended
    counts = {"work": Counter[str](), "clock": Counter[str](), "rest": Counter[str]()}
    for at, text in statements + keeping:
        if notes.started <= at <= until:
            kind = kind_of(text)
            counts[cause_of(kind)][kind] += 1
    notes.work, notes.clock, notes.rest = (dict(counts[cause]) for cause in ("work", "clock", "rest"))
    routed = notes.routed[-1][0] if notes.routed else 0.0
    notes.horizon_reads = sum(notes.started <= at <= routed and kind_of(text) == HORIZON for at, text in statements)


def _stop_at_end_of_input(stop: asyncio.Event) -> None:
    """Set an event when standard input ends; a daemon thread, since nothing else waits for it."""
    loop = asyncio.get_running_loop()

    def watch() -> None:
        sys.stdin.read()
        # The loop is gone when the work was done before.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=watch, name="standard input", daemon=True).start()


async def _tell_when_ready(engine: Any) -> None:
    while not engine.health().ready:  # noqa: ASYNC110 - the engine's health is a snapshot
        await asyncio.sleep(0.01)
    print(json.dumps({"ready": True}), flush=True)


def main() -> int:
    """Work off one order, given as JSON."""
    given = json.loads(sys.argv[1])
    order = Order(**{f.name: given[f.name] for f in fields(Order) if f.name in given})
    if order.profile:
        # Processor time: on a busy machine the wall clock would blame whoever was waited for.
        with cProfile.Profile(time.thread_time) as profile:
            notes = run(work(order))
        profile.dump_stats(order.profile)
    else:
        notes = run(work(order))
    print(json.dumps({"notes": asdict(notes)}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
