"""From declared to running: set-up, start position, and the first tries of what stands in error.

Set-up of one subscription is done by one worker at a time, under a lease of its own that is renewed
like any other; a crash leaves the status as it was, and the next worker does it again.
"""

from collections.abc import Sequence
from typing import Any

from headrace.domain.engine_events import MainStopped, StatusChanged, StoodBack, TookCharge
from headrace.domain.errors import HeadraceError, LeaseLost, NotFinished, Unavailable
from headrace.domain.event import EventFilter
from headrace.domain.ids import START, Position
from headrace.domain.subscription import ErrorClass, Start, StartFrom, Status, Subscription
from headrace.engine.calling import Caller
from headrace.engine.horizon import HorizonService
from headrace.engine.pacing import Pace
from headrace.engine.results import RunError
from headrace.engine.rewound import Rewound
from headrace.engine.tracked import STANDS_BACK, Shared, Tracked
from headrace.failures.text import text_of
from headrace.ports.subscribers import BoundSubscriber, HandlerValues

NOTHING = EventFilter(types=())
SETUP_POLL_SECONDS = 0.2
CHARGE_SECONDS = 5.0
FIRST_LOOK_BACK = 1000


class Lifecycle:
    """Sets subscriptions up."""

    def __init__(self, shared: Shared, horizon: HorizonService, caller: Caller) -> None:
        """Take what all duties share."""
        self._shared = shared
        self._horizon = horizon
        self._caller = caller
        self._catalog = shared.ports.catalog
        self._clock = shared.ports.clock
        self._paces: dict[str, Pace] = {}

    async def declare(self, bound: Sequence[BoundSubscriber]) -> list[Tracked]:
        """Store what the code declares and return it tracked, without setting anything up.

        Raises:
            OwnedElsewhere, BadDeclaration: see the catalog; nothing is stored then.

        """
        stored = await self._catalog.declare([b.declaration(self._shared.options.app) for b in bound])
        tracked = [self.track(b, s) for b, s in zip(bound, stored, strict=True)]
        for one in tracked:
            self.tell_charge(one)
        return tracked

    def track(self, bound: BoundSubscriber, stored: Subscription) -> Tracked:
        """Return a subscription as this engine works on it; how fast it goes is remembered from run to run."""
        options = self._shared.options
        budget = min(options.group_seconds, options.lease_seconds / 3)
        parts = bound.partitions_per_claim or options.group_partitions
        pace = self._paces.setdefault(bound.name, Pace(budget, parts, options.group_events, options.load_bytes))
        declared = bound.declaration(options.app).digest
        return Tracked(bound, stored, pace, bound.timeout or options.handler_timeout, parts, declared)

    def tell_charge(self, one: Tracked) -> None:
        """Say once that another version is in charge of a subscription, and once that it no longer is."""
        if one.told is one.in_charge:
            self._notice(TookCharge(one.name) if one.told else StoodBack(one.name, one.stored.declared))
            one.told = not one.told

    async def take_charge(self, one: Tracked) -> None:
        """Declare anew what stands back: it takes charge when no live worker declares the other version."""
        now = self._clock.monotonic()
        if not one.in_charge and now - one.asked_at >= CHARGE_SECONDS:
            one.asked_at = now
            (one.stored,) = await self._catalog.declare([one.bound.declaration(self._shared.options.app)])
        self.tell_charge(one)

    async def set_up(self, tracked: Sequence[Tracked]) -> list[RunError]:
        """Bring everything new to booting or active; wait for others who are at it.

        Raises:
            NotFinished: another worker holds a set-up longer than ``setup_wait``.

        """
        errors = []
        for one in tracked:
            error = await self._set_up_one(one, self._shared.options.setup_wait)
            if error is not None:
                errors.append(error)
        return errors

    async def retry_now(self, tracked: Sequence[Tracked], *, setup: bool = True) -> None:
        """Try what stands in error for want of a key or a set-up, and look whether a log is back; at every start.

        Not ``setup``: a failed set-up is left as it stands, with its reason. What another version of the app is in
        charge of is left to that: who does not go on with it must not begin it.
        """
        tries = {ErrorClass.KEY, ErrorClass.SETUP} if setup else {ErrorClass.KEY}
        for one in tracked:
            if not one.in_charge:
                continue
            await Rewound(self._shared, one, self._horizon).recover()
            if one.stored.status is Status.ERROR and one.stored.error_class in tries:
                await self._catalog.begin_retry(one.run, one.stored.error_class, force=True)
                await self._refresh(one)

    async def without_setup(self, tracked: Sequence[Tracked]) -> list[Tracked]:
        """Return those that are in charge here and not set up, by what is stored now; asks only if one may be so."""
        standing = {one.name: one for one in tracked if not one.stored.status.is_running}
        if not standing:
            return []
        for stored in await self._catalog.find(list(standing)):
            one = standing[stored.name]
            # A name that was removed and declared anew is another run, and not what this engine works on.
            if stored.run == one.run and stored.epoch >= one.stored.epoch:
                one.stored = stored
        return [one for one in standing.values() if one.in_charge and _wants_setup(one.stored)]

    async def set_up_when_due(self, one: Tracked) -> None:
        """Set up what is new, and again what failed to be when its next try is due; waits for nobody.

        Raises:
            NotFinished: another worker is at it.

        """
        if not one.in_charge:
            return
        if one.stored.status is Status.ERROR:
            if not await self._catalog.begin_retry(one.run, ErrorClass.SETUP):
                return
            await self._refresh(one)
        await self._set_up_one(one, 0.0)

    async def _set_up_one(self, one: Tracked, wait: float) -> RunError | None:
        """Set one up; ``wait``: seconds for another worker that is at it."""
        if not one.in_charge:
            return standing_back(one.name)
        given_up_at = self._clock.monotonic() + wait
        while one.stored.status is Status.NEW and one.in_charge:
            lease = self._shared.ports.randomness.lease_id()
            ttl = self._shared.options.lease_seconds
            sent_at = self._clock.monotonic()
            async with self._catalog.setup_lease(one.stored, lease, ttl) as mine:
                if mine:
                    timeout = max(one.timeout, self._shared.options.setup_wait)
                    self._shared.book.ask(lease, one.name, sent_at, ttl)
                    self._shared.book.vouch(lease, timeout)
                    try:
                        return await self._under_lease(one, timeout)
                    finally:
                        self._shared.book.remove(lease)
            if self._clock.monotonic() >= given_up_at:
                raise NotFinished(f"subscription {one.name!r} is still being set up by another worker")
            await self._clock.sleep(SETUP_POLL_SECONDS)
            await self._refresh(one)
        return None

    async def _under_lease(self, one: Tracked, timeout: float) -> RunError | None:
        await self._refresh(one)
        if one.stored.status is not Status.NEW or not one.in_charge:
            return None
        hook = one.bound.setup_hook
        if hook is not None:
            try:
                async with self._shared.ports.hooks.connection() as connection:
                    await self._caller.call(hook, HandlerValues(connection=connection), timeout)
            except (Unavailable, LeaseLost):
                raise
            except Exception as error:  # noqa: BLE001 - the user's hook
                return await self._setup_failed(one, error)
        position, target = await self._start_of(one)
        one.stored = await self._catalog.start(one.stored, position, target)
        self._notice(StatusChanged(one.name, one.stored.status))
        return None

    async def _setup_failed(self, one: Tracked, error: Exception) -> RunError:
        text = text_of(error)
        delay = min(self._shared.options.retry_min * 2**one.stored.tries, self._shared.options.retry_max)
        reason = f"set-up failed: {text.type}: {text.message}"
        await self._catalog.stop_main(one.run, ErrorClass.SETUP, reason, delay)
        await self._refresh(one)
        self._notice(MainStopped(one.name, ErrorClass.SETUP, reason, delay))
        return RunError(one.name, None, None, reason)

    async def _start_of(self, one: Tracked) -> tuple[Position, Position]:
        """Return start position and boot target, both event rows at or below the horizon."""
        horizon = await self._horizon.refresh()
        last = await self._last_row(horizon.line)
        declared = one.bound.declaration(self._shared.options.app).start
        start: Start = self._shared.options.start_from or declared
        match start:
            case StartFrom.BEGINNING:
                return START, last
            case StartFrom.NOW:
                return last, last
            case position:
                return await self._last_row(Position(min(position, horizon.line))), last

    async def _last_row(self, line: Position) -> Position:
        """Return the last event row at or below the line; looks further and further back over holes."""
        width = FIRST_LOOK_BACK
        while True:
            after = Position(max(line - width, START))
            last = (await self._shared.ports.reader.read(after, line, NOTHING, 1)).last
            if last > after or after == START:
                return last
            width *= FIRST_LOOK_BACK

    async def _refresh(self, one: Tracked) -> None:
        found = await self._catalog.find([one.name])
        if not found:
            raise HeadraceError(f"subscription {one.name!r} was removed meanwhile")
        one.stored = found[0]

    def _notice(self, event: Any) -> None:
        self._shared.ports.observer.notice(event)


def standing_back(name: str) -> RunError:
    """Return what a run says of a subscription that another version of the app is in charge of."""
    return RunError(name, None, None, f"{name} {STANDS_BACK}")


def _wants_setup(stored: Subscription) -> bool:
    failed = stored.status is Status.ERROR and stored.error_class is ErrorClass.SETUP
    return failed or stored.status is Status.NEW
