"""What a group writes about itself, as calls of the server's functions.

The same calls serve a projector's open transaction and a reactor's own short ones. A function that
finds the tables at odds with what the lease says raises, and everything is rolled back.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import asyncpg

from headrace.domain.errors import HeadraceError, LeaseLost
from headrace.domain.ids import LeaseId, PartitionId
from headrace.ports.clock import Identity
from headrace.ports.work import Flush, Flushed, KeyFailure
from headrace.store.pool import Session

SLOTS = 32
"""Counters of a run are spread over so many rows, by lane."""

_AT_ODDS = {"HR002", "HR003", "HR004"}


@contextmanager
def _consistent() -> Iterator[None]:
    """Run a call that proves, by counting rows, that nobody else touched what the lease covers."""
    try:
        yield
    except asyncpg.PostgresError as error:
        if error.sqlstate in _AT_ODDS:
            raise HeadraceError(
                f"the tables do not agree with what this worker claimed ({error}); nothing was stored. Somebody wrote "
                "them by hand, or this is a mistake of ours; please report it with this line"
            ) from error
        raise


async def flush(session: Session, owner: Identity, flush: Flush, *, fence: bool) -> Flushed:
    """Write a flush; ``fence`` where it is the first statement of its transaction.

    Raises:
        LeaseLost: the lease row is gone, or the subscription with its run.
        HeadraceError: partitions, inbox or ready rows are not as they were claimed.

    """
    # Without progress there is only a lease to give back, which is the same for both.
    is_log = not flush.partitioned and bool(flush.progress)
    query = session.queries.flush_log if is_log else session.queries.flush
    arguments = _flush_log_arguments(flush) if is_log else _flush_arguments(flush)
    busy_us = round(flush.busy_seconds * 1_000_000)
    with _consistent():
        row = await session.fetchrow(
            query, flush.run, flush.lease, owner.id, fence, *arguments, flush.slot % SLOTS, busy_us, flush.mode.value
        )
    if row is None:
        raise LeaseLost(f"lease {flush.lease} is gone with its run: the subscription was reset or removed")
    return Flushed(row["drained"], row["status"], row["epoch"], row["streak"])


def _flush_arguments(flush: Flush) -> tuple[object, ...]:
    # Sorted, because the function finds the values of a partition by binary search.
    progress = sorted(flush.progress, key=lambda made: made.part)
    return (
        [p.part for p in progress],
        [p.last for p in progress],
        [len(p.positions) for p in progress],
        [p.part for p in progress for _ in p.positions],
        [position for p in progress for position in p.positions],
        sum(p.vanished for p in progress),
    )


def _flush_log_arguments(flush: Flush) -> tuple[object, ...]:
    (progress,) = flush.progress
    return (progress.part, progress.start, progress.last, len(progress.positions))


async def fail(session: Session, owner: Identity, failure: KeyFailure) -> int:
    """Record a failure and free its key for later; returns its attempts so far.

    Raises:
        LeaseLost: the lease row is gone.
        HeadraceError: the key is not part of the lease.

    """
    with _consistent():
        attempts: int = await session.fetchval(
            session.queries.fail,
            failure.run,
            failure.lease,
            owner.id,
            failure.part,
            failure.position,
            failure.state.value,
            None if failure.delay is None else timedelta(seconds=failure.delay),
            failure.failure_class,
            failure.error_type,
            failure.error,
            owner.name,
            failure.slot % SLOTS,
        )
    return attempts


async def suspect(session: Session, owner: Identity, lease: LeaseId, part: PartitionId) -> None:
    """Count one more owner of a key that others died with; raises like ``fail``."""
    with _consistent():
        await session.execute(session.queries.suspect, lease, owner.id, part)


async def slow(session: Session, owner: Identity, lease: LeaseId, part: PartitionId, delay: float) -> None:
    """Free a key for ``delay`` seconds without an attempt; raises like ``fail``."""
    with _consistent():
        await session.execute(session.queries.slow, lease, owner.id, part, timedelta(seconds=delay))
