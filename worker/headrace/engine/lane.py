"""A lane: claims a group, loads it, has it handled and flushed, and claims the next one meanwhile.

A lane knows no partition of its own: whatever is due may be claimed by any lane of any worker. It
never dies of what it works on: an outage or a lost lease ends the group, not the lane.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from headrace.domain.engine_events import (
    Claimed,
    DatabaseLost,
    EventsVanished,
    Flushed,
    GroupAbandoned,
    KeyFailed,
    KeysHeld,
    LeaseWasLost,
    LossReason,
)
from headrace.domain.errors import LeaseLost, TransactionAborted, Unavailable
from headrace.domain.ids import LeaseId, Position, Run
from headrace.engine.assignment import Assignment
from headrace.engine.judging import TAKEOVER_LIMIT, fatal
from headrace.engine.leases import NotRenewed
from headrace.engine.progress import Done
from headrace.engine.suspects import Suspects
from headrace.engine.tracked import Shared, Tracked
from headrace.engine.wake import Wake
from headrace.ports.work import ClaimGroup, ClaimRequest, Flush, FlushMode, Loaded

UNFENCED_SECONDS = 60.0
"""How long claim, load and release may take before their lane no longer counts as alive."""

OUTAGE_SECONDS = 1.0
"""Pause of a lane after the database did not answer."""


class Handling(Protocol):
    """Handles and flushes one group: projecting or reacting."""

    async def handle(self, assignment: Assignment) -> None:
        """Handle a group to its end."""
        ...


Line = Callable[[], Position]
"""Returns the newest known horizon."""


class Lane:
    """One lane of a worker."""

    def __init__(
        self,
        number: int,
        shared: Shared,
        wake: Wake,
        tracked: Sequence[Tracked],
        line: Line,
        handling: Callable[[Tracked], Handling],
        remaining: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Take its number, the shared state, and what to work on; ``remaining`` bounds a limited run."""
        self._number = number
        self._shared = shared
        self._wake = wake
        self._tracked: dict[Run, Tracked] = {t.run: t for t in tracked}
        self._line = line
        self._handling = handling
        self._remaining = remaining
        self._work = shared.ports.work
        self._book = shared.book
        self._clock = shared.ports.clock
        self._once = False
        self._suspects = Suspects(shared, self._release)

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until draining, or until nothing is due when ``until_idle``.

        Raises:
            Unavailable: the database does not answer, only when ``until_idle``; otherwise it is waited for.
            HeadraceError: a group was abandoned, only when ``until_idle``; otherwise it is tried again.

        """
        ahead: asyncio.Task[Assignment | None] | None = None
        self._once = until_idle
        try:
            while not self._shared.draining:
                assignment = await ahead if ahead is not None else await self._next()
                ahead = None
                if assignment is None:
                    if until_idle and (self._remaining() == 0 or not self._wake.marked()):
                        return
                    await self._wake.wait_marked(self._shared.options.poll_max)
                    continue
                if assignment.tracked.pace.may_prefetch and self._wake.marked() and not self._shared.draining:
                    ahead = asyncio.create_task(self._next(ahead=True), name=f"lane-{self._number}-ahead")
                await self._handle(assignment)
                if assignment.leaves_more(self._line()):
                    self._wake.mark(assignment.group.run)
        finally:
            if ahead is not None:
                await self._give_back_ahead(ahead)

    async def _give_back_ahead(self, ahead: "asyncio.Task[Assignment | None]") -> None:
        assignment = await ahead
        if assignment is not None:
            await self._release(assignment.lease)

    async def _next(self, *, ahead: bool = False) -> Assignment | None:
        """Claim and load the next group of any marked run; None when nothing could be had.

        ``ahead``: another group is in hand.
        """
        try:
            for run, seen in self._wake.marked():
                if self._shared.draining or self._remaining() == 0:
                    return None
                tracked = self._tracked.get(run)
                if tracked is None or not tracked.in_charge:
                    self._wake.clear(run, seen)
                    continue
                group, is_all = await self._claim(tracked)
                if is_all:
                    # Spares the claim that would find nothing; whoever makes more due sets the mark anew.
                    self._wake.clear(run, seen)
                if group is None:
                    continue
                if not await self._may_begin(tracked, group, ahead=ahead):
                    return None
                assignment = await self._load(tracked, group)
                if assignment is not None:
                    self._wake.served(run)
                    return assignment
                self._suspects.done(group.lease)
                self._wake.clear(run, seen)
        except TransactionAborted:
            return None
        except Unavailable as error:
            await self._pause(error)
        return None

    async def _may_begin(self, tracked: Tracked, group: ClaimGroup, *, ahead: bool) -> bool:
        """Tell whether a claimed group may be loaded now; one that may not is given back, and stays marked as due."""
        try:
            return await self._suspects.begins(group, ahead=ahead)
        except LeaseLost:
            self._lost(tracked, group.lease, LossReason.FENCE)
            return False
        except BaseException:
            self._book.drop(group.lease)
            raise

    async def _claim(self, tracked: Tracked) -> tuple[ClaimGroup | None, bool]:
        """Claim a group, None when nothing is due; tells as well whether that is surely all that was due."""
        shared, options = self._shared, self._shared.options
        lease = shared.ports.randomness.lease_id()
        portion = tracked.pace.portion(self._remaining())
        request = ClaimRequest(
            tracked.run,
            lease,
            shared.lanes_of(tracked.name),
            min(portion.parts, tracked.max_parts),
            portion.events,
            portion.floor,
            options.lease_seconds,
        )
        sent_at = self._clock.monotonic()
        self._book.ask(lease, tracked.name, sent_at, options.lease_seconds)
        group: ClaimGroup | None = None
        try:
            if tracked.partitioned:
                group = await self._work.claim(request)
            else:
                group = await self._work.claim_log(request, self._line())
        except BaseException:
            self._book.drop(lease)
            raise
        if group is None:
            self._book.remove(lease)
            return None, True
        self._book.vouch(lease, UNFENCED_SECONDS)
        self._notice(Claimed(tracked.name, self._number, lease, len(group.parts), group.backlog))
        return group, tracked.partitioned and request.leaves_nothing(group)

    async def _load(self, tracked: Tracked, group: ClaimGroup) -> Assignment | None:
        options = self._shared.options
        portion = tracked.pace.portion(self._remaining())
        limit = min(tracked.bound.limit, portion.events)
        try:
            if tracked.partitioned:
                loaded = await self._work.load(group, limit, portion.events, options.load_bytes, tracked.declared)
            else:
                loaded = await self._work.load_log(
                    group, tracked.bound.wanted, self._line(), limit, options.load_bytes, tracked.declared
                )
            assignment = Assignment(tracked, group, loaded, self._number)
            if loaded.held:
                self._notice(KeysHeld(tracked.name, await self._work.hold(group.lease, loaded.held)))
            assignment = await self._without_fatal(assignment)
        except LeaseLost:
            self._lost(tracked, group.lease, LossReason.FENCE)
            return None
        except BaseException:
            self._book.drop(group.lease)
            self._suspects.done(group.lease)
            raise
        if loaded.standing or not assignment.partitions:
            await self._release(group.lease)
            return None
        size = sum(len(e.raw_data) for p in assignment.partitions for e in p.events)
        tracked.pace.observe_bytes(assignment.events, size)
        return assignment

    async def _without_fatal(self, assignment: Assignment) -> Assignment:
        """Set aside keys that several owners died with, before they are handled once more."""
        left = []
        for partition in assignment.partitions:
            if partition.takeovers < TAKEOVER_LIMIT:
                left.append(partition)
                continue
            failure = fatal(assignment, partition)
            attempts = await self._work.fail(failure)
            self._notice(
                KeyFailed(
                    assignment.tracked.name,
                    partition.key,
                    failure.position,
                    "",
                    failure.state,
                    attempts,
                    None,
                    failure.error,
                )
            )
        if len(left) == len(assignment.partitions):
            return assignment
        loaded = Loaded(tuple(left), assignment.loaded.held, assignment.loaded.standing)
        return Assignment(assignment.tracked, assignment.group, loaded, assignment.lane)

    async def _handle(self, assignment: Assignment) -> None:
        tracked, lease = assignment.tracked, assignment.lease
        self._notice_vanished(assignment)
        try:
            self._book.require(lease)
            if assignment.events == 0:
                await self._flush_empty(assignment)
            else:
                await self._handling(tracked).handle(assignment)
        except LeaseLost as error:
            self._lost(tracked, lease, _reason(error, in_session=tracked.bound.kind.transactional))
        except (Unavailable, TransactionAborted) as error:
            if not self._book.is_mine(lease):
                # The server ended the session of a group whose time had run out.
                self._lost(tracked, lease, LossReason.SESSION)
                return
            await self._suspects.absolve()
            self._book.drop(lease)
            if isinstance(error, Unavailable):
                await self._pause(error)
        except Exception as error:
            await self._suspects.absolve()
            self._book.drop(lease)
            self._notice(GroupAbandoned(tracked.name, lease, f"{type(error).__name__}: {error}"))
            if self._once:
                raise
            await self._clock.sleep(OUTAGE_SECONDS)
        except BaseException:
            self._book.drop(lease)
            raise
        finally:
            self._suspects.done(lease)

    def _notice_vanished(self, assignment: Assignment) -> None:
        for partition in assignment.partitions:
            if partition.vanished:
                first, last, count = min(partition.vanished), max(partition.vanished), len(partition.vanished)
                self._notice(EventsVanished(assignment.tracked.name, partition.key, first, last, count))

    async def _flush_empty(self, assignment: Assignment) -> None:
        """Move an unpartitioned subscription over events that it does not want, or pass vanished ones."""
        tracked = assignment.tracked
        progress = Done(assignment.partitions, partitioned=tracked.partitioned).take()
        if not progress:
            await self._release(assignment.lease)
            return
        self._book.ending(assignment.lease)
        flush = Flush(
            assignment.group.run, assignment.lease, FlushMode.END, progress, 0.0, self._number, tracked.partitioned
        )
        await self._work.flush(flush)
        self._book.remove(assignment.lease)
        self._notice(Flushed(tracked.name, self._number, assignment.lease, 0, len(progress), 0.0))

    async def _release(self, lease: LeaseId) -> None:
        self._book.ending(lease)
        try:
            await self._work.release([lease])
        except (Unavailable, TransactionAborted):
            self._book.drop(lease)
        else:
            self._book.remove(lease)

    def _lost(self, tracked: Tracked, lease: LeaseId, reason: LossReason) -> None:
        self._book.remove(lease)
        self._notice(LeaseWasLost(tracked.name, lease, reason))

    async def _pause(self, error: Exception) -> None:
        if self._once:
            raise error
        self._notice(DatabaseLost("", str(error), OUTAGE_SECONDS))
        await self._clock.sleep(OUTAGE_SECONDS)

    def _notice(self, event: Any) -> None:
        self._shared.ports.observer.notice(event)


def _reason(error: LeaseLost, *, in_session: bool) -> LossReason:
    """Return how a lost lease was noticed; ``in_session``: the group had one transaction around its handlers."""
    if not isinstance(error, NotRenewed):
        return LossReason.FENCE
    # Raised while another error was being looked at: the server had ended the session.
    return LossReason.SESSION if in_session and error.__context__ is not None else LossReason.RENEWAL
