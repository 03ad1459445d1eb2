"""How often a router looks and routes: by count on a manual clock, while others append all the time."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from headrace import App, Event, Stream, on, projector
from headrace.domain.horizon import HorizonProbe
from headrace.engine.engine import Engine
from headrace.engine.horizon import HorizonService
from headrace.engine.leases import LeaseBook
from headrace.engine.tracked import Ports, Shared
from headrace.engine.tuning import Tuning
from headrace.ports.routing import RouteResult
from headrace.testing.appending import MemoryEvents
from headrace.testing.catalog import MemoryCatalog
from headrace.testing.clock import ManualClock
from headrace.testing.events import stream_of
from headrace.testing.hooks import MemoryHooks
from headrace.testing.horizon import MemoryHorizonSource
from headrace.testing.memory import MemoryStore
from headrace.testing.observer import RecordingObserver
from headrace.testing.randomness import FixedIdentity, SeededRandomness
from headrace.testing.routing import MemoryRouting
from headrace.testing.work import MemoryWork

STEP = 0.005
"""Seconds between two appends."""


@projector("rare", partition_by=Stream())
class Rare:
    """Wants one type of event."""

    @on("Wanted")
    async def take(self, event: Event) -> None:
        """Do nothing."""


@projector("rarer", partition_by=Stream())
class Rarer(Rare):
    """Another one that wants the same."""


class CountedSource(MemoryHorizonSource):
    """Counts looks, which take as long as a test says."""

    def __init__(self, store: MemoryStore, clock: ManualClock) -> None:
        super().__init__(store)
        self.looks = 0
        self.seconds = 0.0
        self._clock = clock

    async def probe(self) -> HorizonProbe:
        """Look, then be slow."""
        self.looks += 1
        probe = await super().probe()
        await self._clock.sleep(self.seconds)
        return probe


class CountedRouting(MemoryRouting):
    """Counts batches, and notes when one found something."""

    def __init__(self, store: MemoryStore, clock: ManualClock) -> None:
        super().__init__(store)
        self.batches = 0
        self.found_at: list[float] = []
        self._clock = clock

    async def route(self, *args: Any, **named: Any) -> RouteResult:
        """Route and count."""
        self.batches += 1
        result = await super().route(*args, **named)
        if result.routed:
            self.found_at.append(self._clock.monotonic())
        return result


class Bench:
    """A serving engine on twins, and somebody who appends."""

    def __init__(self, *subscribers: object) -> None:
        self.clock = ManualClock()
        store = MemoryStore(self.clock)
        self.events = MemoryEvents(store)
        self.source, self.routing = CountedSource(store, self.clock), CountedRouting(store, self.clock)
        identity, observer = FixedIdentity(), RecordingObserver()
        ports = Ports(
            reader=self.events,
            routing=self.routing,
            work=MemoryWork(store, identity),
            catalog=MemoryCatalog(store, identity),
            hooks=MemoryHooks(store),
            clock=self.clock,
            randomness=SeededRandomness(),
            observer=observer,
        )
        self.threads = ThreadPoolExecutor(max_workers=1)
        self.engine = Engine(
            App(*subscribers, name="rare").subscribers,
            Shared(Tuning("rare"), ports, LeaseBook(self.clock.monotonic)),
            HorizonService(self.source, self.clock, observer),
            self.threads,
        )
        self._streams = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Let the engine serve during the block."""
        stop = asyncio.Event()
        with self.threads:
            served = asyncio.create_task(self.engine.serve(stop))
            await self.clock.advance(1)
            try:
                yield
            finally:
                stop.set()
                await served

    async def append(self, type_: str, seconds: float, every: float = STEP) -> None:
        """Append one event after the other for so long."""
        for _ in range(round(seconds / every)):
            self._streams += 1
            await self.events.append(stream_of(f"s{self._streams}", type_))
            await self.clock.advance(every)

    async def counted(self, type_: str, seconds: float) -> tuple[float, float]:
        """Append for so long; return looks and batches per second."""
        looks, batches = self.source.looks, self.routing.batches
        await self.append(type_, seconds)
        return (self.source.looks - looks) / seconds, (self.routing.batches - batches) / seconds


async def test_a_worker_that_finds_nothing_takes_ten_turns_a_second() -> None:
    """Beside appends that it does not want a worker looks and routes ten times a second, once each."""
    bench = Bench(Rare())
    async with bench.serving():
        await bench.append("Other", 2)
        looks, batches = await bench.counted("Other", 5)
    assert batches <= 10
    assert looks <= 10


async def test_what_nobody_wants_is_passed_over_all_the_same() -> None:
    """The cursor reaches the last row soon after the last append: a reader at rest is never idle for good."""
    bench = Bench(Rare())
    async with bench.serving():
        await bench.append("Other", 3)
        last = await bench.events.head()
        await bench.clock.advance(0.4)
        await bench.engine.wait_for("rare", position=last, timeout=0)


async def test_a_turn_looks_once() -> None:
    """With every event wanted a router looks once for each batch: the look that it waited for is the batch's."""
    bench = Bench(Rare())
    bench.source.seconds = 0.002
    async with bench.serving():
        await bench.append("Wanted", 1)
        looks, batches = await bench.counted("Wanted", 5)
    assert batches >= 25
    assert looks <= batches + 1


async def test_routers_that_wake_together_share_a_look() -> None:
    """Two subscriptions of one process cost no more looks than one."""
    bench = Bench(Rare(), Rarer())
    bench.source.seconds = 0.002
    async with bench.serving():
        await bench.append("Wanted", 1)
        looks, batches = await bench.counted("Wanted", 5)
    assert batches >= 50
    assert looks <= batches / 2 + 1


async def test_wanted_events_that_flow_find_no_router_at_rest() -> None:
    """From the second on, wanted events wait no longer than where all are wanted: a rest is a share of the time
    since something was found.
    """
    bench = Bench(Rare())
    async with bench.serving():
        await bench.append("Other", 5)
        for _ in range(20):
            await bench.append("Wanted", STEP)
            appended_at = bench.clock.monotonic() - STEP
            await bench.append("Other", 0.1)
            waited = bench.routing.found_at[-1] - appended_at
            assert 0 <= waited <= (0.11 if len(bench.routing.found_at) == 1 else 0.025)
    assert len(bench.routing.found_at) == 20
