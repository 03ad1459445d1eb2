"""The engine of one process: the verbs, and the supervisor that owns every duty."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from headrace.domain.engine_events import DatabaseLost, Draining, WaitsForRetries
from headrace.domain.errors import NotFinished, NotFound, TransactionAborted, Unavailable
from headrace.domain.ids import Position
from headrace.domain.subscription import Kind, Status
from headrace.engine.arrival import Arrival, look, wait_for
from headrace.engine.calling import Caller
from headrace.engine.duework import DueWork
from headrace.engine.foremost import foremost
from headrace.engine.horizon import HorizonService
from headrace.engine.lane import Handling, Lane
from headrace.engine.lifecycle import Lifecycle, standing_back
from headrace.engine.projecting import Projecting
from headrace.engine.reacting import Reacting
from headrace.engine.results import Health, RunError, RunResult
from headrace.engine.router import Router
from headrace.engine.setups import Setups
from headrace.engine.tally import Listening, Tally
from headrace.engine.tracked import Shared, Tracked
from headrace.engine.wake import Wake
from headrace.ports.routing import RouteOutcome
from headrace.ports.subscribers import BoundSubscriber, Subscribers

START_RETRY_SECONDS = 1.0
ARRIVAL_SECONDS = 0.1


class Engine:
    """Works on the subscribers of one app.

    One engine runs one verb at a time; verbs of other processes may run beside it.
    """

    def __init__(self, subscribers: Subscribers, shared: Shared, horizon: HorizonService, executor: Executor) -> None:
        """Take the bound subscribers, what all duties share, the horizon and threads for plain functions."""
        self._subscribers = subscribers
        self._listening = Listening(shared.ports.observer)
        shared.ports = replace(shared.ports, observer=self._listening)
        self._shared = shared
        self._horizon = horizon
        caller = Caller(executor)
        self._lifecycle = Lifecycle(shared, horizon, caller)
        self._projecting = Projecting(shared, caller)
        self._reacting = Reacting(shared, caller)
        self._started = False
        self._ended: str | None = None

    def health(self) -> Health:
        """Return a snapshot for probes; safe from any thread."""
        lost = self._listening.database_lost
        reasons = [r for r in (self._ended, lost and f"database: {lost}") if r]
        ready = self._started and not self._shared.draining and not reasons
        return Health(self._started, self._ended is None, ready, self._shared.draining, tuple(reasons))

    def select(self, names: Sequence[str] | None = None, groups: Sequence[str] | None = None) -> list[BoundSubscriber]:
        """Return the named subscribers, or those of the groups; all when neither is given.

        Raises:
            NotFound: the app has none of that name.

        """
        unknown = sorted(set(names or ()) - set(self._subscribers))
        if unknown:
            known = ", ".join(sorted(self._subscribers))
            raise NotFound(f"this app has no subscriber {', '.join(map(repr, unknown))}; it has {known}")
        return [
            s
            for s in self._subscribers.values()
            if (not names or s.name in names) and (not groups or s.group in groups)
        ]

    async def setup(self, names: Sequence[str] | None = None, groups: Sequence[str] | None = None) -> RunResult:
        """Declare subscriptions and set up what is new, hooks included."""
        tracked = await self._lifecycle.declare(self.select(names, groups))
        await self._lifecycle.retry_now(tracked)
        return RunResult(errors=tuple(await self._lifecycle.set_up(tracked)))

    async def boot(
        self, names: Sequence[str] | None = None, groups: Sequence[str] | None = None, *, limit: int | None = None
    ) -> RunResult:
        """Bring booting subscriptions to their boot target, handling at most about ``limit`` events."""
        return await self._drive(await self._in_status(names, groups, Status.BOOTING), limit)

    async def run(
        self, names: Sequence[str] | None = None, groups: Sequence[str] | None = None, *, limit: int | None = None
    ) -> RunResult:
        """Route and handle what active subscriptions have waiting, at most about ``limit`` events."""
        return await self._drive(await self._in_status(names, groups, Status.ACTIVE), limit)

    async def wait_for(
        self, name: str, *, position: int | None = None, key: str | None = None, timeout: float | None = None
    ) -> None:
        """Wait until a subscription has handled everything up to ``position`` (default: the present horizon).

        Raises:
            NotFinished: ``timeout`` seconds have gone by; the message says what stands in the way.

        """
        target = None if position is None else Position(position)
        await wait_for(self._shared.ports, self._horizon, name, target, timeout, key)

    async def serve(
        self, stop: asyncio.Event, *, setup: bool = True, until_caught_up: bool = False, timeout: float | None = None
    ) -> RunResult:
        """Be a worker until ``stop`` is set, or until everything is caught up; drains before it returns.

        Raises:
            NotFinished: ``until_caught_up`` was not reached in ``timeout`` seconds.

        """
        tally = Tally()
        self._listening.add(tally)
        try:
            tracked = await self._started_up(stop, setup=setup)
            arrival = Arrival(pending=until_caught_up, locked=False, blocked=())
            if not stop.is_set():
                setups = Setups(self._shared, self._lifecycle, tracked, setup=setup)
                arrival = await self._work_on(tracked, setups, stop, until_caught_up=until_caught_up, timeout=timeout)
        finally:
            self._listening.remove(tally)
            self._started = False
        errors = tuple(tally.errors) + tuple(RunError(t.split("#")[0], None, None, t) for t in arrival.blocked)
        return RunResult(
            tally.processed,
            arrival.pending,
            arrival.locked,
            errors if until_caught_up else (),
            blocked=bool(arrival.blocked),
        )

    async def _started_up(self, stop: asyncio.Event, *, setup: bool) -> list[Tracked]:
        """Declare and set up; a database that does not answer is waited for."""
        while not stop.is_set():
            try:
                tracked = await self._lifecycle.declare(self.select())
                await self._lifecycle.retry_now(tracked, setup=setup)
                if setup:
                    await self._lifecycle.set_up(tracked)
                return tracked
            except (Unavailable, TransactionAborted) as error:
                self._listening.notice(DatabaseLost("", str(error), START_RETRY_SECONDS))
                await self._shared.ports.clock.sleep(START_RETRY_SECONDS)
        return []

    async def _work_on(
        self,
        tracked: Sequence[Tracked],
        setups: Setups,
        stop: asyncio.Event,
        *,
        until_caught_up: bool,
        timeout: float | None,
    ) -> Arrival:
        self._shared.draining = False
        wake = Wake()
        routers = [Router(self._shared, t, self._horizon, wake) for t in tracked]
        lanes = self._lanes(tracked, wake, None)
        duties = [
            asyncio.create_task(self._horizon.run(), name="horizon"),
            asyncio.create_task(DueWork(self._shared, tracked, wake).run(), name="due-work"),
            asyncio.create_task(setups.run(), name="set-up retries"),
            *(asyncio.create_task(r.run(), name="router") for r in routers),
            *(asyncio.create_task(lane.run(), name="lane") for lane in lanes),
        ]
        watch = asyncio.create_task(
            self._arrive(tracked, timeout) if until_caught_up else self._wait_stop(stop), name="watch"
        )
        stopping = asyncio.create_task(stop.wait(), name="stop")
        self._started, self._ended = True, None
        try:
            ended, _ = await asyncio.wait([*duties, watch, stopping], return_when=asyncio.FIRST_COMPLETED)
            if any(task in ended for task in duties):
                dead = next(task for task in duties if task in ended)
                self._ended = f"the duty {dead.get_name()!r} has ended: {dead.exception()}"
            return await self._drain(duties, watch, stopping, wake)
        finally:
            self._shared.draining = True
            for task in (*duties, watch, stopping):
                task.cancel()
            await asyncio.gather(*duties, watch, stopping, return_exceptions=True)

    async def _drain(
        self,
        duties: "list[asyncio.Task[Any]]",
        watch: "asyncio.Task[Arrival]",
        stopping: "asyncio.Task[bool]",
        wake: Wake,
    ) -> Arrival:
        self._shared.draining = True
        wake.stir()
        self._listening.notice(Draining("", len(self._shared.book.held())))
        lanes = [t for t in duties if t.get_name() == "lane"]
        others = [t for t in duties if t.get_name() != "lane"]
        for task in others:
            task.cancel()
        await asyncio.wait(lanes, timeout=self._shared.options.drain_seconds)
        for task in (*others, *lanes):
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]  # checked the line before
        stopping.cancel()
        if watch.done():
            return watch.result()
        return Arrival(pending=True, locked=False, blocked=())

    async def _wait_stop(self, stop: asyncio.Event) -> Arrival:
        await stop.wait()
        return Arrival(pending=False, locked=False, blocked=())

    async def _arrive(self, tracked: Sequence[Tracked], timeout: float | None) -> Arrival:
        clock = self._shared.ports.clock
        given_up_at = None if timeout is None else clock.monotonic() + timeout
        told, target = False, None
        while True:
            try:
                horizon = await self._horizon.refresh()
                # What is appended after the first look, and who holds the line for it, is not waited for.
                target = horizon.head if target is None else target
                held = horizon.line < min(target, horizon.head)
                arrival = await look(self._shared.ports, tracked, horizon, target)
                if arrival.backing_off and not told:
                    self._listening.notice(WaitsForRetries(""))
                    told = True
                if not arrival.pending and not held:
                    return arrival
            except (Unavailable, TransactionAborted) as error:
                self._listening.notice(DatabaseLost("", str(error), START_RETRY_SECONDS))
                await clock.sleep(START_RETRY_SECONDS)
                continue
            if given_up_at is not None and clock.monotonic() >= given_up_at:
                where = f"; reading is held at {horizon.line} of {horizon.head}" if held else ""
                raise NotFinished(f"not caught up in {timeout:g} s{where}")
            await clock.sleep(ARRIVAL_SECONDS)

    async def _in_status(
        self, names: Sequence[str] | None, groups: Sequence[str] | None, status: Status
    ) -> list[Tracked]:
        tracked = await self._lifecycle.declare(self.select(names, groups))
        return [t for t in tracked if t.stored.status is status]

    async def _drive(self, tracked: Sequence[Tracked], limit: int | None) -> RunResult:
        """Route and handle until nothing moves any more, or the limit is reached."""
        tally = Tally()
        self._listening.add(tally)
        self._shared.draining = False
        wake = Wake()
        routers = [Router(self._shared, t, self._horizon, wake) for t in tracked]
        lanes = self._lanes(tracked, wake, lambda: None if limit is None else max(limit - tally.processed, 0))
        due = DueWork(self._shared, tracked, wake)
        try:
            while tracked and (limit is None or tally.processed < limit):
                before = tally.mark
                for router in routers:
                    await self._route_all(router, limit)
                await due.look()
                await self._until_idle(lanes)
                for router in routers:
                    await router.finish_boot()
                if tally.mark == before:
                    break
            arrival = await look(self._shared.ports, tracked, await self._horizon.refresh())
        finally:
            self._listening.remove(tally)
        back = [standing_back(t.name) for t in tracked if not t.in_charge]
        return RunResult(tally.processed, arrival.pending, arrival.locked, (*tally.errors, *back))

    async def _until_idle(self, lanes: Sequence[Lane]) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for lane in lanes:
                    tasks.create_task(lane.run(until_idle=True), name="lane")
        except BaseExceptionGroup as group:
            raise foremost(group) from group

    async def _route_all(self, router: Router, limit: int | None) -> None:
        batch = self._shared.options.route_batch if limit is None else min(limit, self._shared.options.route_batch)
        while True:
            result = await router.step(batch)
            if result is None or result.outcome is not RouteOutcome.ROUTED or result.complete or result.bad:
                return
            if limit is not None:
                return

    def _lanes(self, tracked: Sequence[Tracked], wake: Wake, remaining: Any) -> list[Lane]:
        return [
            Lane(
                number,
                self._shared,
                wake,
                tracked,
                self._line,
                self._handling,
                remaining if remaining is not None else lambda: None,
            )
            for number in range(self._shared.options.lanes)
        ]

    def _line(self) -> Position:
        latest = self._horizon.latest
        return Position(0) if latest is None else latest.line

    def _handling(self, tracked: Tracked) -> Handling:
        return self._projecting if tracked.bound.kind is Kind.PROJECTOR else self._reacting
