"""The router's loop of one subscription: every wanted event once into the inbox of its partition.

Any number of processes may run it for the same subscription: the cursor row lets one route at a
time, and a spare router costs two short statements when the horizon has moved, none otherwise. For
an unpartitioned subscription there is nothing to route; the loop only says that events wait.
"""

from collections.abc import Sequence
from typing import Any

from headrace.domain.engine_events import DatabaseLost, IdleRemoved, MainStopped, Routed, StatusChanged
from headrace.domain.errors import BadDeclaration, KeyNotMade, TransactionAborted, Unavailable
from headrace.domain.event import Event
from headrace.domain.ids import Position
from headrace.domain.subscription import ErrorClass, Status
from headrace.engine.horizon import LEAST_PAUSE, HorizonService
from headrace.engine.rewound import Rewound
from headrace.engine.tracked import Shared, Tracked
from headrace.engine.wake import Wake
from headrace.partitioning.keys import Partitioner, key_of, spec_of
from headrace.ports.routing import BadKey, RouteOutcome, RouteResult

BUSY_SECONDS = 0.05
"""Pause after somebody else held the cursor row."""

STANDING_SECONDS = 0.5
"""Pause while the subscription is not running."""

OUTAGE_SECONDS = 1.0

REST_SHARE = 0.05
REST_SECONDS = 0.1
"""Where nothing wanted comes: the share of the time since something was found that a router rests, at most so long."""

FRESH_SECONDS = 0.01
"""A look at the line that ended no longer ago than this serves the batch: there has just been a wait for it."""

SWEEP_SECONDS = 10.0
"""Between two slices of idle removal."""


class Router:
    """Routes one subscription."""

    def __init__(self, shared: Shared, tracked: Tracked, horizon: HorizonService, wake: Wake) -> None:
        """Take what it routes, the line it may go up to, and whom it wakes."""
        self._shared = shared
        self._tracked = tracked
        self._horizon = horizon
        self._wake = wake
        self._routing = shared.ports.routing
        self._clock = shared.ports.clock
        self._rewound = Rewound(shared, tracked, horizon)
        self._complete_at: Position | None = None
        self._tries = 0
        self._swept_at = self._found_at = self._clock.monotonic()

    async def run(self) -> None:
        """Route until draining."""
        while not self._shared.draining:
            try:
                await self._turn()
            except (Unavailable, TransactionAborted) as error:
                self._notice(DatabaseLost(self._tracked.name, str(error), OUTAGE_SECONDS))
                await self._clock.sleep(OUTAGE_SECONDS)

    async def _turn(self) -> None:
        done, limit = self._complete_at, self._shared.options.route_batch
        if done is None:
            # A backlog: this looks before each batch, and so for everybody.
            with self._horizon.reading():
                result = await self.step(limit)
        else:
            await self._look_after()
            await self._rest()
            seen = self._rewound.starts
            horizon = await self._horizon.wait_advanced(done, self._shared.options.poll_max, seen)
            if horizon.line == done and horizon.starts == seen:
                return
            result = await self.step(limit, FRESH_SECONDS)
        if result is None:
            return
        match result.outcome:
            case RouteOutcome.BUSY:
                await self._clock.sleep(BUSY_SECONDS)
            case RouteOutcome.STANDING:
                await self._look_after()
                await self._clock.sleep(STANDING_SECONDS)

    async def _rest(self) -> None:
        """Pass over ground without wanted events in long steps: a look and a batch cost the same however long it is."""
        rest = min((self._clock.monotonic() - self._found_at) * REST_SHARE, REST_SECONDS)
        if self._tracked.partitioned and rest > LEAST_PAUSE:
            await self._clock.sleep(rest)

    async def step(self, limit: int, fresh: float = 0.0) -> RouteResult | None:
        """Route one batch, below a line that was looked at since this call, or at most ``fresh`` seconds before it.

        None when all up to the line is routed, or there is only somebody to wake.
        """
        horizon = await (self._horizon.recent(fresh) if fresh else self._horizon.refresh())
        if await self._rewound.stops(horizon):
            self._complete_at = None
            return RouteResult(RouteOutcome.STANDING)
        line = horizon.line
        if line == self._complete_at:
            return None
        if not self._tracked.in_charge:
            return RouteResult(RouteOutcome.STANDING)
        if not self._tracked.partitioned:
            self._wake.mark(self._tracked.run)
            self._complete_at = line
            return None
        result = await self._route(line, limit)
        self._complete_at = line if result.outcome is RouteOutcome.ROUTED and result.complete else None
        if result.routed:
            self._found_at = self._clock.monotonic()
            self._wake.mark(self._tracked.run)
            self._notice(Routed(self._tracked.name, result.routed, result.activated, result.position))
        if result.bad is not None:
            await self._stop(result.bad)
        elif result.outcome is RouteOutcome.ROUTED:
            self._tries = 0
        return result

    @property
    def _partitioner(self) -> Partitioner:
        found = self._tracked.bound.partitioner
        if found is None:
            raise BadDeclaration(f"subscription {self._tracked.name!r} is stored as partitioned and declares no key")
        return found

    async def _route(self, line: Position, limit: int) -> RouteResult:
        bound, partitioner = self._tracked.bound, self._partitioner
        if spec_of(partitioner) is not None:
            return await self._routing.route(
                self._tracked.run, partitioner, bound.wanted, line, limit, self._tracked.declared
            )
        batch = await self._routing.read_unrouted(
            self._tracked.run, bound.wanted, line, limit, self._shared.options.route_bytes, self._tracked.declared
        )
        if batch.outcome is not RouteOutcome.ROUTED:
            return RouteResult(batch.outcome, batch.position)
        # The user's function runs outside any transaction; compare and swap of the cursor is the fence.
        routes, bad = self._keys(batch.events)
        last = batch.last
        if bad is not None:
            before = [e.position for e in batch.events if e.position < bad.position]
            last = before[-1] if before else batch.position
        # What stands before an event without a key is not complete, whatever else has been read: it is tried again.
        complete = batch.complete and bad is None
        if last == batch.position:
            return RouteResult(RouteOutcome.ROUTED, batch.position, complete=complete, bad=bad)
        stored = await self._routing.store_routes(
            self._tracked.run, batch.position, last, routes, self._tracked.declared
        )
        complete = complete and stored.outcome is RouteOutcome.ROUTED
        return RouteResult(
            stored.outcome, stored.position, stored.routed, stored.activated, stored.created, complete, bad
        )

    def _keys(self, events: Sequence[Event[Any]]) -> tuple[list[tuple[Position, str]], BadKey | None]:
        routes: list[tuple[Position, str]] = []
        for event in events:
            try:
                key = key_of(self._partitioner, event)
            except KeyNotMade as error:
                return routes, BadKey(event.position, event.type, str(error))
            if key is not None:
                routes.append((event.position, key))
        return routes, None

    async def _stop(self, bad: BadKey) -> None:
        """Stop the main before an event without a key: routing past it could break its key's order."""
        options = self._shared.options
        delay = min(options.retry_min * 2**self._tries, options.retry_max)
        self._tries += 1
        reason = f"{bad.problem}; or pass the event over: headrace skip {self._tracked.name} --position {bad.position}"
        await self._shared.ports.catalog.stop_main(self._tracked.run, ErrorClass.KEY, reason, delay)
        self._notice(MainStopped(self._tracked.name, ErrorClass.KEY, reason, delay))

    async def _look_after(self) -> None:
        """Do what is rarely due: finish booting, try a standing main again, remove idle partitions."""
        if self._tracked.stored.status is Status.BOOTING:
            await self._activate()
        elif await self._retries():
            self._complete_at = None
            self._notice(StatusChanged(self._tracked.name, "retrying"))
        idle = self._tracked.bound.remove_idle_after
        if idle is not None and self._clock.monotonic() - self._swept_at >= min(SWEEP_SECONDS, idle):
            self._swept_at = self._clock.monotonic()
            removed = await self._routing.sweep(self._tracked.run, idle, self._shared.options.sweep_slice)
            if removed > 0:
                self._notice(IdleRemoved(self._tracked.name, removed))

    async def _retries(self) -> bool:
        if not self._tracked.in_charge:
            return False
        if await self._rewound.look_again():
            return True
        catalog = self._shared.ports.catalog
        return self._complete_at is None and await catalog.begin_retry(self._tracked.run, ErrorClass.KEY)

    async def finish_boot(self) -> None:
        """Move a booting subscription to active when it has arrived."""
        if self._tracked.stored.status is Status.BOOTING:
            await self._activate()

    async def _activate(self) -> None:
        if await self._shared.ports.catalog.activate(self._tracked.run):
            self._tracked.stored = self._tracked.stored.activated()
            self._complete_at = None
            self._notice(StatusChanged(self._tracked.name, Status.ACTIVE))

    def _notice(self, event: Any) -> None:
        self._shared.ports.observer.notice(event)
