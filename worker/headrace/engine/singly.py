"""One partition of a projector in transactions of its own, so that the event that fails is charged and no other.

First all its events in one transaction, with a savepoint for each. Where no savepoint helps (an error at
the commit, a session that the handler has used up, an owner that may die) each event gets a transaction
of its own. A partition that is kept stays in the lease; nothing is ever written after LeaseLost.
"""

from dataclasses import dataclass
from typing import Any

from headrace.domain.engine_events import Flushed, Handled
from headrace.domain.errors import LeaseLost, NotAllowed, TransactionAborted, Unavailable
from headrace.domain.event import Event
from headrace.engine.assignment import Assignment
from headrace.engine.calling import Caller
from headrace.engine.delivering import Step, deliver, steps
from headrace.engine.judging import Slow, Verdict, judge, notice_verdict, wants_hook
from headrace.engine.progress import Done, part_of
from headrace.engine.tracked import Shared
from headrace.ports.subscribers import HandlerValues, StopHere
from headrace.ports.work import ALONE_FROM, Flush, FlushMode, LoadedPartition, WorkTransaction

ENDS = (LeaseLost, Unavailable, TransactionAborted)
"""What ends a transaction for no fault of a key."""


class TargetLostError(Exception):
    """A handler's own target does not answer, while the database of its transaction does."""


class _NotChargedError(Exception):
    """An event has failed, and its transaction is lost: what follows from the error is not written yet."""

    def __init__(self, event: Event[Any], error: BaseException) -> None:
        super().__init__(event, error)
        self.event = event
        self.error = error


@dataclass(slots=True)
class _Trial:
    """One partition in a transaction of its own: what is done, what has failed and what follows from it."""

    done: Done
    attempts: int
    failed: tuple[Event[Any], BaseException] | None = None
    verdict: Verdict | None = None


class Singly:
    """Handles and flushes partitions alone."""

    def __init__(self, shared: Shared, caller: Caller) -> None:
        """Take what all duties share, and the caller of user code."""
        self._shared = shared
        self._caller = caller
        self._work = shared.ports.work

    async def one(self, assignment: Assignment, partition: LoadedPartition, *, keep: bool = False) -> bool:
        """Handle and flush one partition and charge the event that fails; tells whether none has.

        ``keep``: it stays in the lease, since more of it follows.
        """
        if partition.takeovers >= ALONE_FROM and len(partition.events) > 1:
            # Should its owner die again, the position must say at which event.
            return await self._event_by_event(assignment, partition)
        try:
            return await self._alone(assignment, partition, keep=keep)
        except ENDS:
            raise
        except _NotChargedError as lost:
            self._shared.book.require(assignment.lease)
            number = partition.events.index(lost.event)
            if number and not await self.one(assignment, part_of(partition, 0, number), keep=True):
                return False
            return await self._charge(assignment, part_of(partition, number, number + 1), lost.error, keep=keep)
        except Exception as error:  # noqa: BLE001 - at the flush or the commit: no savepoint could name the event
            self._shared.book.require(assignment.lease)
            if len(partition.events) == 1:
                return await self._charge(assignment, partition, error, keep=keep)
            return await self._event_by_event(assignment, partition)

    async def _event_by_event(self, assignment: Assignment, partition: LoadedPartition) -> bool:
        """Give each event of a partition a transaction of its own, up to the one that fails; tells whether none has."""
        for number in range(len(partition.events)):
            self._shared.book.require(assignment.lease)
            if self._shared.draining and number:
                break
            if not await self.one(assignment, part_of(partition, number, number + 1), keep=True):
                return False
        return True

    async def _alone(
        self,
        assignment: Assignment,
        partition: LoadedPartition,
        *,
        keep: bool = False,
        known: BaseException | None = None,
    ) -> bool:
        """Handle and flush one partition in one transaction; ``known`` is the error of its one event, not tried again.

        Raises:
            _NotChargedError: an event has failed, and with the transaction its record is lost.

        """
        tracked, clock = assignment.tracked, self._shared.ports.clock
        trial = _Trial(Done([partition], partitioned=tracked.partitioned), partition.attempts)
        started = clock.monotonic()
        try:
            async with self._work.begin(assignment.group, self.idle_seconds(assignment)) as tx:
                await self._events(assignment, partition, tx, trial, known)
                busy = clock.monotonic() - started
                progress = trial.done.take()
                if progress:
                    mode = FlushMode.KEEP if keep or trial.verdict is not None else FlushMode.PART
                    run, lease, lane = assignment.group.run, assignment.lease, assignment.lane
                    await tx.flush(Flush(run, lease, mode, progress, busy, lane, tracked.partitioned))
                if trial.verdict is not None:
                    trial.attempts = await self._write(tx, trial.verdict, partition, trial.attempts)
        except (LeaseLost, TransactionAborted):
            raise
        except Exception as lost:
            if trial.failed is None:
                raise
            raise _NotChargedError(*trial.failed) from lost
        self.report(assignment, trial.done.count, len(progress), busy, clock.monotonic() - started - busy)
        if trial.failed is not None and trial.verdict is not None:
            event, observer = trial.failed[0], self._shared.ports.observer
            notice_verdict(observer, tracked.name, partition, event, trial.verdict, trial.attempts)
        return trial.verdict is None

    async def _events(
        self,
        assignment: Assignment,
        partition: LoadedPartition,
        tx: WorkTransaction,
        trial: _Trial,
        known: BaseException | None,
    ) -> None:
        """Hand over the events of one partition, up to the one that fails."""
        for step in steps(assignment.tracked, [partition], single=True):
            if self._shared.draining and trial.done.count:
                return
            event = step.items[0][1]
            error = known or await self._tried(assignment, step, tx)
            if error is not None:
                trial.failed = (event, error)
                trial.attempts = 0 if trial.done.count else partition.attempts
                trial.verdict = await self._verdict(assignment, partition, event, error, trial.attempts, tx)
                if trial.verdict is not None:
                    return
                trial.failed = None
            trial.done.add(partition, event.position)

    async def _tried(self, assignment: Assignment, step: Step, tx: WorkTransaction) -> BaseException | None:
        """Hand over one event under a savepoint; returns the error that concerns its key, None when there is none."""
        self.vouch(assignment, assignment.tracked.timeout)
        try:
            async with tx.savepoint():
                await deliver(self._caller, assignment.tracked, step, tx.connection)
        except Unavailable as error:
            # Not ours, if the transaction stands: the handler's own target does not answer.
            if await self.is_lost(tx):
                raise
            return error
        except ENDS:
            raise
        except (Exception, StopHere) as error:  # noqa: BLE001 - judged by class
            self._shared.book.require(assignment.lease)
            return error
        return None

    async def is_lost(self, tx: WorkTransaction) -> bool:
        """Tell whether a transaction cannot go on, by trying it."""
        try:
            async with tx.savepoint():
                return False
        except NotAllowed:
            # A call that a handler never awaited: the database was not asked, and will be by the next transaction.
            return False
        except Exception:  # noqa: BLE001 - whatever it is, the first error is the one that counts
            return True

    async def _charge(
        self, assignment: Assignment, partition: LoadedPartition, error: BaseException, *, keep: bool
    ) -> bool:
        """Write what follows from the error of the one event of a partition; True when the hook has swallowed it."""
        try:
            return await self._alone(assignment, partition, keep=keep, known=error)
        except ENDS:
            raise
        except Exception as again:  # noqa: BLE001 - the failed hook has cost this transaction, too
            self._shared.book.require(assignment.lease)
            error.add_note(f"the failed hook raised as well: {again}")
        unit = self._shared.ports.randomness.uniform(0.0, 1.0)
        event, attempts = partition.events[0], partition.attempts
        verdict = judge(assignment, partition, event, error, attempts=attempts, unit=unit)
        if isinstance(verdict, Slow):
            await self._work.slow(assignment.lease, partition.part, verdict.delay)
        else:
            attempts = await self._work.fail(verdict)
        notice_verdict(self._shared.ports.observer, assignment.tracked.name, partition, event, verdict, attempts)
        return False

    async def _verdict(
        self,
        assignment: Assignment,
        partition: LoadedPartition,
        event: Event[Any],
        error: BaseException,
        attempts: int,
        tx: WorkTransaction,
    ) -> Verdict | None:
        """Judge an error; None when the failed hook has swallowed the event."""
        unit = self._shared.ports.randomness.uniform(0.0, 1.0)
        verdict = judge(assignment, partition, event, error, attempts=attempts, unit=unit)
        hook = assignment.tracked.bound.on_failed_hook
        if hook is None or not wants_hook(verdict):
            return verdict
        context = assignment.tracked.context(partition)
        try:
            async with tx.savepoint():
                values = HandlerValues(event, (), partition.key, tx.connection, context, error)
                await self._caller.call(hook, values, assignment.tracked.timeout)
        except ENDS:
            raise
        except Exception as again:  # noqa: BLE001 - the handler's own error is the one to keep
            error.add_note(f"the failed hook raised as well: {again}")
            return judge(assignment, partition, event, error, attempts=attempts, unit=unit)
        return None

    async def _write(self, tx: WorkTransaction, verdict: Verdict, partition: LoadedPartition, attempts: int) -> int:
        if isinstance(verdict, Slow):
            await tx.slow(partition.part, verdict.delay)
            return attempts
        return await tx.fail(verdict)

    def idle_seconds(self, assignment: Assignment) -> float:
        """Return how long the server lets a handler's transaction be idle."""
        return max(self._shared.options.lease_seconds, assignment.tracked.bound.timeout or 0.0)

    def vouch(self, assignment: Assignment, seconds: float) -> None:
        """Say that the lane is alive and will report again within so many seconds."""
        self._shared.book.vouch(assignment.lease, seconds + self._shared.options.lease_seconds)

    def report(self, assignment: Assignment, events: int, partitions: int, busy: float, flushing: float) -> None:
        """Report what was handled and flushed, and in how many seconds."""
        name = assignment.tracked.name
        assignment.tracked.pace.observe(events, busy + flushing)
        self._notice(Handled(name, assignment.lane, events, busy))
        self._notice(Flushed(name, assignment.lane, assignment.lease, events, partitions, flushing))

    def _notice(self, event: Any) -> None:
        self._shared.ports.observer.notice(event)
