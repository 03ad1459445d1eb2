"""Projectors: handlers and flush share one fenced transaction.

First the whole group in one transaction. When a member fails, everything is rolled back and the
members are done one by one under the same lease, each in its own transaction with a savepoint per
event, so that one bad key costs the others nothing but time. Never writes anything after LeaseLost.
"""

from collections.abc import Sequence
from typing import Any

from headrace.domain.engine_events import Flushed, GroupRolledBack, Handled, KeySlowed
from headrace.domain.errors import LeaseLost, TransactionAborted, Unavailable
from headrace.domain.event import Event
from headrace.engine.assignment import Assignment
from headrace.engine.calling import Caller
from headrace.engine.delivering import deliver, steps
from headrace.engine.judging import ABORTED_SECONDS, Slow, Verdict, judge, notice_verdict, wants_hook
from headrace.engine.progress import Done
from headrace.engine.tracked import Shared
from headrace.ports.subscribers import HandlerValues, StopHere
from headrace.ports.work import Flush, FlushMode, LoadedPartition, WorkTransaction

TOGETHER_TRIES = 2
"""How often a group whose transaction the database gave up is tried whole before it is done one by one."""

ENDS = (LeaseLost, Unavailable, TransactionAborted)
"""What ends a transaction for no fault of a key."""


class Projecting:
    """Handles groups of projectors."""

    def __init__(self, shared: Shared, caller: Caller) -> None:
        """Take what all duties share, and the caller of user code."""
        self._shared = shared
        self._caller = caller
        self._work = shared.ports.work

    async def handle(self, assignment: Assignment) -> None:
        """Handle and flush a group; afterwards its lease is gone or lost.

        Raises:
            LeaseLost: somebody else owns the group.
            Unavailable: the database does not answer; nothing was stored.

        """
        # A key that failed before is likely to fail again: alone, so that it does not roll the others back.
        suspects = [p for p in assignment.partitions if p.attempts > 0]
        await self._one_by_one(assignment, suspects)
        rest = [p for p in assignment.partitions if p.attempts == 0]
        if rest and not await self._tried_together(assignment, rest):
            await self._one_by_one(assignment, rest)
        if self._shared.book.holds(assignment.lease):
            self._shared.book.ending(assignment.lease)
            await self._work.release([assignment.lease])
            self._shared.book.remove(assignment.lease)

    async def _tried_together(self, assignment: Assignment, partitions: Sequence[LoadedPartition]) -> bool:
        """Handle partitions in one transaction that ends the lease; False when they must be done one by one."""
        for _ in range(TOGETHER_TRIES):
            if self._shared.draining:
                return False
            try:
                await self._together(assignment, partitions)
                return True
            except (LeaseLost, Unavailable):
                raise
            except TransactionAborted:
                self._shared.book.require(assignment.lease)
            except (Exception, StopHere) as error:  # noqa: BLE001 - whatever user code raises concerns its key
                self._shared.book.require(assignment.lease)
                text = f"{type(error).__name__}: {error}"
                self._notice(GroupRolledBack(assignment.tracked.name, assignment.lease, text))
                return False
        return False

    async def _together(self, assignment: Assignment, partitions: Sequence[LoadedPartition]) -> None:
        tracked, clock = assignment.tracked, self._shared.ports.clock
        done = Done(partitions, partitioned=tracked.partitioned)
        started = clock.monotonic()
        async with self._work.begin(assignment.group, self._idle_seconds(assignment)) as tx:
            for step in steps(tracked, partitions):
                if self._shared.draining and done.count:
                    break
                if step.batch is not None or step.handlers:
                    self._vouch(assignment, tracked.timeout)
                    await deliver(self._caller, tracked, step, tx.connection)
                for partition, event in step.items:
                    done.add(partition, event.position)
            await tx.settle()
            busy = clock.monotonic() - started
            self._vouch(assignment, self._shared.options.flush_seconds)
            self._shared.book.ending(assignment.lease)
            progress = done.take()
            await tx.flush(
                Flush(
                    assignment.group.run,
                    assignment.lease,
                    FlushMode.END,
                    progress,
                    busy,
                    assignment.lane,
                    tracked.partitioned,
                )
            )
        self._shared.book.remove(assignment.lease)
        self._report(assignment, done.count, len(progress), busy, clock.monotonic() - started - busy)

    async def _one_by_one(self, assignment: Assignment, partitions: Sequence[LoadedPartition]) -> None:
        for partition in partitions:
            self._shared.book.require(assignment.lease)
            if self._shared.draining:
                break
            try:
                await self._alone(assignment, partition)
            except TransactionAborted:
                self._shared.book.require(assignment.lease)
                delay = ABORTED_SECONDS * self._shared.ports.randomness.uniform(0.0, 1.0)
                await self._work.slow(assignment.lease, partition.part, delay)
                self._notice(KeySlowed(assignment.tracked.name, partition.key, delay, "transaction given up"))
            except (LeaseLost, Unavailable):
                raise
            except Exception as error:  # noqa: BLE001 - at the flush or the commit: no savepoint could name the event
                self._shared.book.require(assignment.lease)
                await self._failed_whole(assignment, partition, error)

    async def _alone(self, assignment: Assignment, partition: LoadedPartition) -> None:
        tracked, clock = assignment.tracked, self._shared.ports.clock
        done = Done([partition], partitioned=tracked.partitioned)
        started = clock.monotonic()
        stopped: tuple[Event[Any], Verdict] | None = None
        attempts = 0
        async with self._work.begin(assignment.group, self._idle_seconds(assignment)) as tx:
            for step in steps(tracked, [partition], single=True):
                event = step.items[0][1]
                self._vouch(assignment, tracked.timeout)
                try:
                    async with tx.savepoint():
                        await deliver(self._caller, tracked, step, tx.connection)
                        await tx.settle()
                except ENDS:
                    raise
                except (Exception, StopHere) as error:  # noqa: BLE001 - judged by class
                    self._shared.book.require(assignment.lease)
                    attempts = 0 if done.count else partition.attempts
                    verdict = await self._verdict(assignment, partition, event, error, attempts, tx)
                    if verdict is not None:
                        stopped = (event, verdict)
                        break
                done.add(partition, event.position)
            busy = clock.monotonic() - started
            progress = done.take()
            if progress:
                mode = FlushMode.PART if stopped is None else FlushMode.KEEP
                await tx.flush(
                    Flush(
                        assignment.group.run,
                        assignment.lease,
                        mode,
                        progress,
                        busy,
                        assignment.lane,
                        tracked.partitioned,
                    )
                )
            if stopped is not None:
                attempts = await self._write(tx, stopped[1], partition, attempts)
        self._report(assignment, done.count, len(progress), busy, clock.monotonic() - started - busy)
        if stopped is not None:
            notice_verdict(self._shared.ports.observer, tracked.name, partition, *stopped, attempts)

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
                await tx.settle()
        except ENDS:
            raise
        except Exception as again:  # noqa: BLE001 - the handler's own error is the one to keep
            error.add_note(f"the failed hook raised as well: {again}")
            return verdict
        return None

    async def _failed_whole(self, assignment: Assignment, partition: LoadedPartition, error: Exception) -> None:
        """Record an error that no event can be blamed for, such as a deferred constraint at the commit."""
        unit = self._shared.ports.randomness.uniform(0.0, 1.0)
        event, attempts = partition.events[0], partition.attempts
        verdict = judge(assignment, partition, event, error, attempts=attempts, unit=unit)
        if isinstance(verdict, Slow):
            await self._work.slow(assignment.lease, partition.part, verdict.delay)
        else:
            attempts = await self._work.fail(verdict)
        notice_verdict(self._shared.ports.observer, assignment.tracked.name, partition, event, verdict, attempts)

    async def _write(self, tx: WorkTransaction, verdict: Verdict, partition: LoadedPartition, attempts: int) -> int:
        if isinstance(verdict, Slow):
            await tx.slow(partition.part, verdict.delay)
            return attempts
        return await tx.fail(verdict)

    def _idle_seconds(self, assignment: Assignment) -> float:
        return max(self._shared.options.lease_seconds, assignment.tracked.timeout)

    def _vouch(self, assignment: Assignment, seconds: float) -> None:
        self._shared.book.vouch(assignment.lease, seconds + self._shared.options.lease_seconds)

    def _notice(self, event: Any) -> None:
        self._shared.ports.observer.notice(event)

    def _report(self, assignment: Assignment, events: int, partitions: int, busy: float, flushing: float) -> None:
        name = assignment.tracked.name
        assignment.tracked.pace.observe(events, busy + flushing)
        self._notice(Handled(name, assignment.lane, events, busy))
        self._notice(Flushed(name, assignment.lane, assignment.lease, events, partitions, flushing))
