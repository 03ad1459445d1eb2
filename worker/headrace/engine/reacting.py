"""Reactors: handlers run outside any transaction, several keys at once, each key in order.

Delivery is at least once: what is done is flushed every few events, every moment, and at the end;
a process that dies between a handler and its flush repeats at most that. Before each event the
worker asks its own clock whether the lease can still be its own.
"""

import asyncio
from typing import Any

from headrace.domain.engine_events import Flushed, Handled
from headrace.domain.errors import LeaseLost, TransactionAborted
from headrace.engine.assignment import Assignment
from headrace.engine.calling import Caller
from headrace.engine.delivering import Step, deliver, needs_connection, steps
from headrace.engine.foremost import foremost
from headrace.engine.judging import Slow, judge, notice_verdict, wants_hook
from headrace.engine.progress import Done
from headrace.engine.tracked import Shared
from headrace.ports.subscribers import HandlerValues, StopHere
from headrace.ports.work import ALONE_FROM, Flush, FlushMode, LoadedPartition

FLUSH_TRIES = 5
"""How often a flush that the database gave up (a deadlock, say) is sent."""


class Reacting:
    """Handles groups of reactors."""

    def __init__(self, shared: Shared, caller: Caller) -> None:
        """Take what all duties share, and the caller of user code."""
        self._shared = shared
        self._caller = caller

    async def handle(self, assignment: Assignment) -> None:
        """Handle and flush a group; afterwards its lease is gone or lost.

        Raises:
            LeaseLost: somebody else owns the group.
            Unavailable: the database does not answer; what was flushed stays flushed.

        """
        await _Reaction(self._shared, self._caller, assignment).run()


class _Reaction:
    """One group being handled."""

    def __init__(self, shared: Shared, caller: Caller, assignment: Assignment) -> None:
        self._shared = shared
        self._caller = caller
        self._work = shared.ports.work
        self._clock = shared.ports.clock
        self._assignment = assignment
        self._tracked = assignment.tracked
        self._done = Done(assignment.partitions, partitioned=assignment.tracked.partitioned)
        self._writing = asyncio.Lock()
        self._over = asyncio.Event()

    async def run(self) -> None:
        started = self._clock.monotonic()
        limit = asyncio.Semaphore(self._tracked.bound.concurrency)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._flush_regularly(), name="reactor-flush")
                keys = [
                    tasks.create_task(self._one_key(partition, limit), name="reactor-key")
                    for partition in self._assignment.partitions
                ]
                await asyncio.wait(keys)
                self._over.set()
        except BaseExceptionGroup as group:
            # The first error ended the others; a lost lease outranks an outage.
            raise foremost(group) from group
        busy = self._clock.monotonic() - started
        self._shared.book.ending(self._assignment.lease)
        async with self._writing:
            await self._flush(FlushMode.END, busy)
        self._shared.book.remove(self._assignment.lease)
        self._tracked.pace.observe(self._done.count, self._clock.monotonic() - started)
        self._notice(Handled(self._tracked.name, self._assignment.lane, self._done.count, busy))

    async def _one_key(self, partition: LoadedPartition, limit: asyncio.Semaphore) -> None:
        async with limit:
            for step in steps(self._tracked, [partition]):
                if self._shared.draining:
                    return
                self._shared.book.require(self._assignment.lease)
                self._vouch()
                try:
                    await self._deliver(step)
                except LeaseLost:
                    raise
                except (Exception, StopHere) as error:  # noqa: BLE001 - judged by class
                    if not await self._failed(partition, step, error):
                        return
                for _, event in step.items:
                    self._done.add(partition, event.position)
                if self._done.unflushed >= self._shared.options.reactor_flush_events or _is_deadly(partition):
                    await self._flush_kept()

    async def _deliver(self, step: Step) -> None:
        if needs_connection(step):
            # Not the transaction of the flush: a reactor's statements commit one by one.
            async with self._shared.ports.hooks.connection() as connection:
                await deliver(self._caller, self._tracked, step, connection)
        elif step.batch is not None or step.handlers:
            await deliver(self._caller, self._tracked, step, None)

    async def _failed(self, partition: LoadedPartition, step: Step, error: BaseException) -> bool:
        """Write what follows from an error; True when the failed hook has swallowed the event."""
        event = step.items[0][1]
        attempts = 0 if self._done.handled(partition) else partition.attempts
        unit = self._shared.ports.randomness.uniform(0.0, 1.0)
        verdict = judge(self._assignment, partition, event, error, attempts=attempts, unit=unit)
        hook = self._tracked.bound.on_failed_hook
        if hook is not None and wants_hook(verdict):
            values = HandlerValues(event, (), partition.key, None, self._tracked.context(partition), error)
            try:
                await self._caller.call(hook, values, self._tracked.timeout)
            except Exception as again:  # noqa: BLE001 - the handler's own error is the one to keep
                error.add_note(f"the failed hook raised as well: {again}")
                verdict = judge(self._assignment, partition, event, error, attempts=attempts, unit=unit)
            else:
                return True
        self._shared.book.require(self._assignment.lease)
        async with self._writing:
            await self._flush(FlushMode.KEEP)
            self._done.close(partition)
            if isinstance(verdict, Slow):
                await self._work.slow(self._assignment.lease, partition.part, verdict.delay)
            else:
                attempts = await self._work.fail(verdict)
        notice_verdict(self._shared.ports.observer, self._tracked.name, partition, event, verdict, attempts)
        return False

    async def _flush_regularly(self) -> None:
        while not self._over.is_set():
            try:
                async with asyncio.timeout(self._shared.options.reactor_flush_seconds):
                    await self._over.wait()
            except TimeoutError:
                if self._done.unflushed:
                    await self._flush_kept()

    async def _flush_kept(self) -> None:
        async with self._writing:
            await self._flush(FlushMode.KEEP)

    async def _flush(self, mode: FlushMode, busy: float = 0.0) -> None:
        """Send one flush; the caller holds the writing lock, so that nothing is given out twice."""
        started = self._clock.monotonic()
        events = self._done.unflushed
        progress = self._done.take()
        if not progress and mode is not FlushMode.END:
            return
        assignment = self._assignment
        flush = Flush(
            assignment.group.run, assignment.lease, mode, progress, busy, assignment.lane, self._tracked.partitioned
        )
        for left in reversed(range(FLUSH_TRIES)):
            try:
                await self._work.flush(flush)
                break
            except TransactionAborted:
                if not left:
                    raise
        seconds = self._clock.monotonic() - started
        self._notice(Flushed(self._tracked.name, assignment.lane, assignment.lease, events, len(progress), seconds))

    def _vouch(self) -> None:
        seconds = self._tracked.timeout + self._shared.options.lease_seconds
        self._shared.book.vouch(self._assignment.lease, seconds)

    def _notice(self, event: Any) -> None:
        self._shared.ports.observer.notice(event)


def _is_deadly(partition: LoadedPartition) -> bool:
    """Tell whether owners died with this key: should one die again, the position must say at which event."""
    return partition.takeovers >= ALONE_FROM
