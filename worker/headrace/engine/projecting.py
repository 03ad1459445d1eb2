"""Projectors: handlers and flush share one fenced transaction.

First the whole group in one transaction. When a member fails, everything is rolled back and the
members are done one by one under the same lease, so that one bad key costs the others nothing but
time. Never writes anything after LeaseLost.
"""

from collections.abc import Sequence
from typing import Any

from headrace.domain.engine_events import GroupRolledBack, KeySlowed
from headrace.domain.errors import LeaseLost, TransactionAborted, Unavailable
from headrace.engine.assignment import Assignment
from headrace.engine.calling import Caller
from headrace.engine.delivering import Step, deliver, steps
from headrace.engine.judging import ABORTED_SECONDS
from headrace.engine.progress import Done
from headrace.engine.singly import Singly, TargetLostError
from headrace.engine.tracked import Shared, Tracked
from headrace.failures.text import text_of
from headrace.ports.subscribers import StopHere
from headrace.ports.work import ALONE_FROM, Flush, FlushMode, LoadedPartition, WorkTransaction

TOGETHER_TRIES = 2
"""How often a group whose transaction the database gave up is tried whole before it is done one by one."""


class Projecting:
    """Handles groups of projectors."""

    def __init__(self, shared: Shared, caller: Caller) -> None:
        """Take what all duties share, and the caller of user code."""
        self._shared = shared
        self._caller = caller
        self._work = shared.ports.work
        self._singly = Singly(shared, caller)

    async def handle(self, assignment: Assignment) -> None:
        """Handle and flush a group; afterwards its lease is gone or lost.

        Raises:
            LeaseLost: somebody else owns the group.
            Unavailable: the database does not answer; nothing was stored.

        """
        # A key that failed before is likely to fail again: alone, so that it does not roll the others back.
        suspects = [p for p in assignment.partitions if _is_suspect(p)]
        await self._one_by_one(assignment, suspects)
        rest = [p for p in assignment.partitions if not _is_suspect(p)]
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
                text = text_of(error)
                told = f"{text.type}: {text.message}"
                self._notice(GroupRolledBack(assignment.tracked.name, assignment.lease, told))
                return False
        return False

    async def _together(self, assignment: Assignment, partitions: Sequence[LoadedPartition]) -> None:
        tracked, clock = assignment.tracked, self._shared.ports.clock
        done = Done(partitions, partitioned=tracked.partitioned)
        started = clock.monotonic()
        async with self._work.begin(assignment.group, self._singly.idle_seconds(assignment)) as tx:
            for step in steps(tracked, partitions):
                if self._shared.draining and done.count:
                    break
                if step.batch is not None or step.handlers:
                    self._singly.vouch(assignment, tracked.timeout)
                    await self._deliver(tracked, step, tx)
                for partition, event in step.items:
                    done.add(partition, event.position)
            await tx.settle()
            busy = clock.monotonic() - started
            self._singly.vouch(assignment, self._shared.options.flush_seconds)
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
        self._singly.report(assignment, done.count, len(progress), busy, clock.monotonic() - started - busy)

    async def _deliver(self, tracked: Tracked, step: Step, tx: WorkTransaction) -> None:
        try:
            await deliver(self._caller, tracked, step, tx.connection)
        except Unavailable as error:
            if await self._singly.is_lost(tx):
                raise
            raise TargetLostError(str(error)) from error

    async def _one_by_one(self, assignment: Assignment, partitions: Sequence[LoadedPartition]) -> None:
        for partition in partitions:
            self._shared.book.require(assignment.lease)
            if self._shared.draining:
                break
            try:
                await self._singly.one(assignment, partition)
            except TransactionAborted:
                self._shared.book.require(assignment.lease)
                delay = ABORTED_SECONDS * self._shared.ports.randomness.uniform(0.0, 1.0)
                await self._work.slow(assignment.lease, partition.part, delay)
                self._notice(KeySlowed(assignment.tracked.name, partition.key, delay, "transaction given up"))

    def _notice(self, event: Any) -> None:
        self._shared.ports.observer.notice(event)


def _is_suspect(partition: LoadedPartition) -> bool:
    return partition.attempts > 0 or partition.takeovers >= ALONE_FROM
