"""The horizon service: who looks when, what is shared, what is told."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from headrace.domain.engine_events import DatabaseFound, DatabaseLost, HorizonHeld
from headrace.domain.errors import NotExact, Unavailable
from headrace.domain.horizon import Holder, HorizonProbe
from headrace.domain.ids import START, Position
from headrace.engine.horizon import HorizonPace, HorizonService
from headrace.ports.horizon import HolderReport, SourceCheck
from headrace.testing.clock import ManualClock
from headrace.testing.observer import RecordingObserver

ANN = Holder("3/1", 31)


class Source:
    """A source whose answers a test sets; looks wait for the gate, so that a test can hold one in flight."""

    def __init__(self) -> None:
        self.sequence = 0
        self.holders: tuple[Holder, ...] = ()
        self.server = "first"
        self.problems: tuple[str, ...] = ()
        self.failure: Exception | None = None
        self.stored = START
        self.rows = START
        self.looks = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def probe(self) -> HorizonProbe:
        """Answer what was set when the look began."""
        self.looks += 1
        answer = HorizonProbe(Position(self.sequence), self.holders, self.server, self.problems)
        failure = self.failure
        await self.gate.wait()
        if failure is not None:
            raise failure
        return answer

    async def contiguous_from(self, base: Position, upto: Position) -> Position:
        """Answer the row up to which there is no hole."""
        return max(base, min(self.rows, upto))

    async def describe(self, holder: Holder) -> HolderReport | None:
        """Answer a report about whoever is asked for."""
        since = datetime(2026, 1, 1, tzinfo=UTC)
        return HolderReport(holder.pid, None, "svc-orders", "10.0.0.7", "idle in transaction", since, 12.5)

    async def check(self) -> SourceCheck:
        """Answer the problems that were set."""
        return SourceCheck(self.problems, ("a note",))

    async def stored_position(self) -> Position:
        """Answer the base."""
        return self.stored


class Stage:
    """A service with all that it was handed."""

    def __init__(self, *, exact: bool = True, pace: HorizonPace | None = None) -> None:
        self.source, self.clock, self.observer = Source(), ManualClock(), RecordingObserver()
        self.service = HorizonService(self.source, self.clock, self.observer, exact=exact, pace=pace)

    async def while_running(self, act: Callable[[], object] | None, seconds: float) -> None:
        """Let the service's own loop run for so many seconds of the manual clock."""
        loop = asyncio.create_task(self.service.run())
        await self.clock.turn()
        if act is not None:
            act()
        await self.clock.advance(seconds)
        loop.cancel()
        with suppress(asyncio.CancelledError):
            await loop


async def test_concurrent_callers_share_one_look() -> None:
    """However many subscriptions ask at once, the server is asked once for those that wait, not once for each."""
    stage = Stage()
    stage.source.gate.clear()
    first = asyncio.create_task(stage.service.refresh())
    await stage.clock.turn()
    others = [asyncio.create_task(stage.service.refresh()) for _ in range(20)]
    await stage.clock.turn()
    stage.source.gate.set()
    await asyncio.gather(first, *others)
    assert stage.source.looks == 2


async def test_a_caller_never_gets_a_look_that_began_before_it() -> None:
    """What was committed before the call must be at or below the line if nobody is open: an old look would not do."""
    stage = Stage()
    stage.source.gate.clear()
    first = asyncio.create_task(stage.service.refresh())
    await stage.clock.turn()
    stage.source.sequence = 5
    second = asyncio.create_task(stage.service.refresh())
    await stage.clock.turn()
    stage.source.gate.set()
    assert (await first).line == 0
    assert (await second).line == 5


async def test_a_cancelled_caller_leaves_the_others_their_look() -> None:
    """Whoever looks for all may be cancelled; the next one looks."""
    stage = Stage()
    stage.source.gate.clear()
    first, second = (asyncio.create_task(stage.service.refresh()) for _ in range(2))
    await stage.clock.turn()
    first.cancel()
    await stage.clock.turn()
    stage.source.gate.set()
    assert (await second).line == 0
    assert stage.source.looks == 2


async def test_the_first_look_starts_from_what_readers_have_stored() -> None:
    """Open appends met at the start hold the line at the stored row, then at the last row without a hole."""
    stage = Stage()
    stage.source.sequence, stage.source.holders = 100, (ANN,)
    stage.source.stored, stage.source.rows = Position(60), Position(75)
    assert (await stage.service.start()).line == 75
    assert stage.service.notes == ("a note",)


async def test_another_server_run_starts_from_what_readers_have_stored() -> None:
    """After a restart remembered floors are worth nothing."""
    stage = Stage()
    stage.source.sequence = 100
    assert (await stage.service.start()).line == 100
    stage.source.sequence, stage.source.holders, stage.source.server = 110, (ANN,), "second"
    stage.source.stored = Position(90)
    assert (await stage.service.refresh()).line == 90


async def test_a_lost_database_makes_the_next_look_a_start() -> None:
    """A connection that broke may have hidden a crash: floors are dropped, even when the server looks the same."""
    stage = Stage()
    stage.source.sequence = 100
    await stage.service.start()
    stage.source.failure = Unavailable("gone")
    with pytest.raises(Unavailable):
        await stage.service.refresh()
    stage.source.failure, stage.source.sequence, stage.source.holders = None, 110, (ANN,)
    stage.source.stored = Position(90)
    assert (await stage.service.refresh()).line == 90


async def test_a_table_with_problems_is_refused() -> None:
    """A table that cannot be read exactly stops the worker at its start, naming the problem and the way out."""
    stage = Stage()
    stage.source.problems = ("the sequence has CACHE 50: run `alter sequence …`",)
    with pytest.raises(NotExact, match=r"CACHE 50.*exact=False"):
        await stage.service.start()


async def test_a_problem_that_comes_later_is_refused_too() -> None:
    """Somebody may alter the sequence while workers run."""
    stage = Stage()
    await stage.service.start()
    stage.source.problems = ("the sequence has CACHE 50",)
    loop = asyncio.create_task(stage.service.run())
    await stage.clock.advance(1)
    with pytest.raises(NotExact):
        await loop


async def test_accepted_problems_stay_visible() -> None:
    """Whoever accepts missed events keeps being told."""
    stage = Stage(exact=False)
    stage.source.problems = ("the sequence has CACHE 50",)
    assert (await stage.service.start()).problems == stage.service.problems == stage.source.problems


async def test_an_idle_service_looks_less_and_less_often() -> None:
    """Idle logs cost four looks a second and process, not a hundred."""
    stage = Stage()
    await stage.while_running(None, 60.0)
    assert 60 / 0.25 <= stage.source.looks <= 60 / 0.25 + 20


async def test_a_change_brings_the_pace_back() -> None:
    """After an append the next looks follow quickly, if somebody waits for them."""
    stage = Stage()
    await stage.while_running(None, 10.0)
    stage.source.sequence, before = 1, stage.source.looks
    waiter = asyncio.create_task(stage.service.wait_advanced(Position(1), timeout=60, starts=1))
    await stage.while_running(None, 0.25 + 0.05)
    assert stage.source.looks - before >= 3
    stage.source.sequence = 2
    await stage.clock.advance(0.25)
    assert (await waiter).line == 2


async def test_the_loop_alone_looks_seldom_although_the_line_moves() -> None:
    """Nobody waits for the line: four looks a second are enough to tell of a line that is held, or of an outage."""
    stage = Stage()
    await stage.service.start()
    loop, before = asyncio.create_task(stage.service.run()), stage.source.looks
    for number in range(1000):
        stage.source.sequence = number
        await stage.clock.advance(0.01)
    assert 30 <= stage.source.looks - before <= 10 / 0.25
    loop.cancel()
    with suppress(asyncio.CancelledError):
        await loop


async def test_who_wakes_together_shares_the_look_in_flight() -> None:
    """A look takes its time, and whoever became due at the same moment must not begin another behind it."""
    stage = Stage()
    await stage.service.start()
    waiters = [asyncio.create_task(stage.service.wait_advanced(START, timeout=60, starts=1)) for _ in range(10)]
    await stage.clock.turn()
    stage.source.sequence, before = 1, stage.source.looks
    stage.source.gate.clear()
    await stage.clock.advance(0.25)
    stage.source.gate.set()
    assert {horizon.line for horizon in await asyncio.gather(*waiters)} == {1}
    assert stage.source.looks - before == 1


async def test_a_recent_look_serves_again_for_a_moment() -> None:
    """A look that just ended serves who waited for it; after its moment, or after a look that failed, there is a new
    one: the server may have crashed since, and the sequence gone back.
    """
    stage = Stage()
    await stage.service.start()
    stage.source.sequence = 1
    await stage.clock.advance(0.01)
    assert (await stage.service.recent(0.01)).line == 0
    await stage.clock.advance(0.001)
    assert (await stage.service.recent(0.01)).line == 1
    stage.source.failure = Unavailable("gone")
    with pytest.raises(Unavailable):
        await stage.service.refresh()
    stage.source.failure, stage.source.sequence = None, 2
    assert (await stage.service.recent(0.01)).line == 2


async def test_the_loop_rests_while_others_look() -> None:
    """With work waiting the horizon is read once per routed batch, not by the clock as well."""
    stage = Stage()
    await stage.service.start()
    loop = asyncio.create_task(stage.service.run())
    before = stage.source.looks
    for number in range(200):
        stage.source.sequence = number
        await stage.service.refresh()
        await stage.clock.advance(0.009)
    assert stage.source.looks - before == 200
    loop.cancel()
    with suppress(asyncio.CancelledError):
        await loop


async def test_the_loop_rests_while_a_reader_is_at_work() -> None:
    """A batch may take longer than the clock's pace: the reader looks again before its next one, the clock need not."""
    stage = Stage()
    await stage.service.start()
    loop = asyncio.create_task(stage.service.run())
    await stage.clock.turn()
    before = stage.source.looks
    for number in range(20):
        stage.source.sequence = number
        with stage.service.reading():
            await stage.service.refresh()
            await stage.clock.advance(0.6)
    assert stage.source.looks - before == 20
    with stage.service.reading():
        await stage.clock.advance(30)
    assert stage.source.looks - before >= 20 + 30 / 2 - 1, "a reader that is stuck must not stop the clock"
    loop.cancel()
    with suppress(asyncio.CancelledError):
        await loop


async def test_waiting_hears_of_a_look_by_a_reader_at_work() -> None:
    """While one subscription routes its backlog, the line that it finds wakes the others."""
    stage = Stage()
    await stage.service.start()
    waiter = asyncio.create_task(stage.service.wait_advanced(Position(4), timeout=60, starts=1))
    with stage.service.reading():
        await stage.clock.advance(1)
        stage.source.sequence = 5
        await stage.service.refresh()
        looks = stage.source.looks
        await stage.clock.advance(0.3)
    assert (await waiter).line == 5
    assert stage.source.looks == looks


async def test_waiting_ends_when_the_line_has_passed() -> None:
    """A waiter returns at the first look that shows the line beyond its position."""
    stage = Stage()
    await stage.service.start()
    waiter = asyncio.create_task(stage.service.wait_advanced(Position(4), timeout=60, starts=1))
    await stage.clock.advance(1)
    assert not waiter.done()
    stage.source.sequence = 5
    await stage.clock.advance(0.3)
    assert (await waiter).line == 5


async def test_waiting_ends_at_its_time_out() -> None:
    """A waiter in vain gets the newest horizon after its time."""
    stage = Stage()
    waiter = asyncio.create_task(stage.service.wait_advanced(Position(4), timeout=2, starts=1))
    await stage.clock.advance(1.9)
    assert not waiter.done()
    await stage.clock.advance(0.2)
    assert (await waiter).line == 0


async def test_waiting_ends_when_the_sequence_went_back() -> None:
    """Whoever waits for a higher line hears at once that the line was begun anew, and so does who asks too late."""
    stage = Stage()
    stage.source.sequence = 4
    await stage.service.start()
    waiter = asyncio.create_task(stage.service.wait_advanced(Position(4), timeout=60, starts=1))
    await stage.clock.advance(1)
    assert not waiter.done()
    stage.source.sequence = 3
    await stage.clock.advance(0.3)
    assert waiter.done()
    assert ((await waiter).line, (await waiter).starts) == (3, 2)
    late = asyncio.create_task(stage.service.wait_advanced(Position(4), timeout=60, starts=1))
    await stage.clock.turn()
    assert late.done()
    late.cancel()


async def test_many_waiters_share_their_looks() -> None:
    """A hundred idle subscriptions cost as many looks as one."""
    stage = Stage()
    await stage.service.start()
    waiters = [asyncio.create_task(stage.service.wait_advanced(START, timeout=10, starts=1)) for _ in range(100)]
    await stage.clock.advance(11)
    await asyncio.gather(*waiters)
    assert stage.source.looks <= 10 / 0.25 + 20


async def test_a_held_line_is_told_with_its_holder() -> None:
    """Who holds reading back, since when and how much waits is told after a second, and then now and then."""
    stage = Stage(pace=HorizonPace(held_after=1.0, held_every=10.0))
    stage.source.sequence = 10
    await stage.service.start()
    stage.source.sequence, stage.source.holders = 15, (ANN,)
    await stage.while_running(None, 0.9)
    assert stage.observer.of(HorizonHeld) == []
    await stage.while_running(None, 25.0)
    told = stage.observer.of(HorizonHeld)
    assert len(told) == 3
    assert (told[0].position, told[0].head, told[0].since_seconds) == (10, 15, 12.5)
    assert told[0].holder == "pid 31 (svc-orders, 10.0.0.7, idle in transaction) since 2026-01-01 00:00:00+0000"
    assert str(await stage.service.holder()) == told[0].holder


async def test_a_held_line_is_told_although_readers_do_all_the_looking() -> None:
    """Somebody who waits for the line refreshes it all the time: that must not keep the news from anybody."""
    stage = Stage(pace=HorizonPace(held_after=1.0))
    stage.source.sequence = 10
    await stage.service.start()
    stage.source.sequence, stage.source.holders = 15, (ANN,)

    async def refresh_always() -> None:
        while True:
            await stage.service.refresh()
            await stage.clock.sleep(0.005)

    reader = asyncio.create_task(refresh_always())
    await stage.while_running(None, 3.0)
    reader.cancel()
    with suppress(asyncio.CancelledError):
        await reader

    assert [told.position for told in stage.observer.of(HorizonHeld)] == [10]


async def test_a_lost_database_is_told_once_and_found_again() -> None:
    """The loop survives an outage without help; it is told when it begins and when it ends."""
    stage = Stage()
    await stage.service.start()
    stage.source.failure = Unavailable("gone")
    await stage.while_running(None, 30)
    assert len(stage.observer.of(DatabaseLost)) == 1
    stage.source.failure = None
    await stage.while_running(None, 6)
    assert len(stage.observer.of(DatabaseFound)) == 1
