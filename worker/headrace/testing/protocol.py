"""What the database's functions of the partition protocol do, on the tables in memory.

One function here for each of the migration: claim, fence, flush, fail, slow, hold, release, renew,
take-over, sweep, with the same conditions, the same SQLSTATEs and the same counters. Each is one
statement: it never awaits, and the caller runs it inside ``journal.atomic``.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

from headrace.domain.errors import LeaseLost
from headrace.domain.ids import LeaseId, PartitionId, Position, Run
from headrace.ports.work import (
    ClaimedPart,
    ClaimRequest,
    FailureState,
    Flush,
    Flushed,
    FlushMode,
    KeyFailure,
    TakenOver,
)
from headrace.testing.memory import (
    ENTRY_IS_GONE,
    FIRST_SLICE,
    PARTITION_IS_GONE,
    READY_IS_GONE,
    BrokenProtocol,
    CountersRow,
    FailureRow,
    LeaseRow,
    MemoryStore,
    ReadyRow,
)

MAX_ATTEMPTS = 32_767
LANE_SAMPLE = 1000
ALONE_FROM = 2


@dataclass(frozen=True, slots=True)
class Owner:
    """A worker process, as its leases name it."""

    id: UUID
    worker: str


def claim(store: MemoryStore, owner: Owner, request: ClaimRequest) -> tuple[ClaimedPart, ...]:
    """Take due partitions under a new lease; nothing when none is due."""
    chosen = _chosen(_due(store, request.run), request)
    if not chosen:
        return ()
    put_lease(store, owner, request, parts=len(chosen))
    for row in chosen:
        store.ready.put(row.part, replace(row, lease=request.lease))
    return tuple(
        ClaimedPart(row.part, row.backlog, max(row.attempts, 0), row.takeovers)
        for row in sorted(chosen, key=lambda row: row.part)
    )


def put_lease(store: MemoryStore, owner: Owner, request: ClaimRequest, parts: int, purpose: str = "work") -> None:
    """Insert the lease of a claim."""
    if request.lease in store.leases:
        raise BrokenProtocol("23505", f"lease id {request.lease} is in use")
    store.leases.put(
        request.lease,
        LeaseRow(
            id=request.lease,
            run=request.run,
            purpose=purpose,
            owner=owner.id,
            worker=owner.worker,
            parts=parts,
            events=request.events,
            expires_at=store.later(request.ttl),
        ),
    )


def _due(store: MemoryStore, run: Run) -> list[ReadyRow]:
    now = store.now()
    due = [row for row in store.ready_of(run) if row.is_due(now)]
    return sorted(due, key=lambda row: (row.due_at, row.turn, row.part))


def _chosen(due: Sequence[ReadyRow], request: ClaimRequest) -> list[ReadyRow]:
    share = request.parts
    if request.lanes > 1:
        share = max(math.ceil(min(len(due), request.lanes * LANE_SAMPLE) / request.lanes), 1)
    candidates = due[: min(request.parts, max(share, request.floor))]
    chosen: list[ReadyRow] = []
    before = 0
    for n, row in enumerate(candidates, start=1):
        # A key that has outlived two owners may be what killed them: it goes alone.
        fits_alone = n == 1 if candidates[0].takeovers >= ALONE_FROM else row.takeovers < ALONE_FROM
        if fits_alone and before < request.events and (n <= share or before < request.floor):
            chosen.append(row)
        before += row.backlog
    return chosen


def fence(store: MemoryStore, owner: Owner, lease: LeaseId) -> LeaseRow:
    """Return the lease row, whatever its expiry.

    Raises:
        LeaseLost: it is gone, or another worker's.

    """
    row = store.leases.get(lease)
    if row is None or row.owner != owner.id:
        raise LeaseLost(f"lease {lease} is gone")
    return row


def flush(store: MemoryStore, owner: Owner, flush: Flush, *, fenced: bool = False) -> Flushed:
    """Write positions, inbox, ready rows and counters; ``fenced`` where the transaction has opened with the fence."""
    if not fenced:
        fence(store, owner, flush.lease)
    if not flush.partitioned:
        return _flush_log(store, flush)
    for progress in flush.progress:
        _move_partition(store, progress.part, progress.last)
    for progress in flush.progress:
        _use_entries(store, progress.part, progress.positions)
    held = {row.part for row in store.leased_by(flush.lease)}
    if gone := [progress.part for progress in flush.progress if progress.part not in held]:
        raise BrokenProtocol(READY_IS_GONE, f"{len(gone)} of {len(flush.progress)} ready rows are gone")
    drained = 0
    for progress in flush.progress:
        drained += _lower(store, progress.part, len(progress.positions), progress.last, flush.mode)
    _count_flush(store, flush, drained)
    if flush.mode is FlushMode.END:
        for row in store.leased_by(flush.lease):
            store.set_due(row, store.now(), lease=None)
        store.leases.drop(flush.lease)
    return _after_flush(store, flush.run, drained)


def _move_partition(store: MemoryStore, part: PartitionId, last: Position) -> None:
    row = store.partitions.get(part)
    if row is None or row.position >= last:
        raise BrokenProtocol(PARTITION_IS_GONE, f"partition {part} is gone or ahead of {last}")
    store.partitions.put(part, replace(row, position=last, touched_at=store.now()))


def _use_entries(store: MemoryStore, part: PartitionId, positions: Iterable[Position]) -> None:
    entries = store.inbox.get(part, ())
    used = set(positions)
    if not used <= set(entries):
        raise BrokenProtocol(ENTRY_IS_GONE, f"inbox entries of partition {part} are gone")
    put_entries(store, part, tuple(entry for entry in entries if entry not in used))


def put_entries(store: MemoryStore, part: PartitionId, entries: tuple[Position, ...]) -> None:
    """Write the whole inbox of a partition; an empty one has no row."""
    if entries:
        store.inbox.put(part, entries)
    else:
        store.inbox.drop(part)


def _lower(store: MemoryStore, part: PartitionId, handled: int, last: Position, mode: FlushMode) -> int:
    """Drop the ready row where nothing came meanwhile; otherwise what came is due. Returns 1 for a drop."""
    row = store.ready[part]
    if row.attempts:
        store.failures.drop(part)
    if row.backlog == handled:
        store.ready.drop(part)
        return 1
    later = [entry for entry in store.inbox.get(part, ()) if entry > last]
    if not later:
        raise BrokenProtocol("23502", f"partition {part} keeps inbox entries below its position")
    store.set_due(
        row,
        store.now(),
        backlog=row.backlog - handled,
        first_pos=later[0],
        lease=row.lease if mode is FlushMode.KEEP else None,
        attempts=0,
        takeovers=0,
    )
    return 0


def _count_flush(store: MemoryStore, flush: Flush, drained: int) -> None:
    used = sum(len(progress.positions) for progress in flush.progress)
    vanished = sum(progress.vanished for progress in flush.progress)
    busy_us = round(flush.busy_seconds * 1_000_000)
    if used or busy_us:
        counted = CountersRow(handled=used - vanished, drained=drained, skipped=vanished, busy_us=busy_us)
        store.count(flush.run, flush.slot, counted)


def _flush_log(store: MemoryStore, flush: Flush) -> Flushed:
    """Move the one partition of an unpartitioned run from where the load found it."""
    (progress,) = flush.progress
    moves = progress.last > progress.start
    if progress.last != progress.start:
        row = store.partitions.get(progress.part)
        if row is None or row.position != progress.start or not moves:
            raise BrokenProtocol(PARTITION_IS_GONE, f"position of partition {progress.part} is not {progress.start}")
        _move_partition(store, progress.part, progress.last)
    ready = store.ready.get(progress.part)
    if ready is None or ready.lease != flush.lease:
        raise BrokenProtocol(READY_IS_GONE, f"ready row of partition {progress.part} is gone")
    store.set_due(
        ready,
        store.now(),
        lease=None if flush.mode is FlushMode.END else ready.lease,
        first_pos=progress.last,
        attempts=0 if moves else ready.attempts,
        takeovers=0 if moves else ready.takeovers,
    )
    if ready.attempts and moves:
        store.failures.drop(progress.part)
    busy_us = round(flush.busy_seconds * 1_000_000)
    if progress.positions or busy_us:
        store.count(flush.run, flush.slot, CountersRow(handled=len(progress.positions), busy_us=busy_us))
    if flush.mode is FlushMode.END:
        store.leases.drop(flush.lease)
    return _after_flush(store, flush.run, 0)


def _after_flush(store: MemoryStore, run: Run, drained: int) -> Flushed:
    row = store.subscription_of(run)
    if row is None:
        raise LeaseLost("the lease is gone with its run: the subscription was reset or removed")
    return Flushed(drained, row.stored.status.value, row.stored.epoch, row.streak)


def fail(store: MemoryStore, owner: Owner, failure: KeyFailure) -> int:
    """Record that a key failed and free it for later; returns its attempts so far."""
    fence(store, owner, failure.lease)
    ready = _leased_row(store, failure.lease, failure.part)
    due_at = None if failure.delay is None else store.later(failure.delay)
    attempts = min(max(ready.attempts, 0) + 1, MAX_ATTEMPTS)
    store.set_due(ready, due_at, lease=None, takeovers=0, attempts=attempts)
    now = store.now()
    before = store.failures.get(failure.part)
    is_same = before is not None and before.position == failure.position
    store.failures.put(
        failure.part,
        FailureRow(
            part=failure.part,
            run=failure.run,
            position=failure.position,
            state=failure.state,
            attempts=attempts,
            failure_class=failure.failure_class,
            error_type=failure.error_type,
            error=failure.error,
            first_failed_at=before.first_failed_at if before is not None and is_same else now,
            failed_at=now,
            next_retry_at=due_at,
            worker=owner.worker,
        ),
    )
    if failure.state is not FailureState.BACKING_OFF:
        store.count(failure.run, failure.slot, CountersRow(parked=1))
    return attempts


def slow(store: MemoryStore, owner: Owner, lease: LeaseId, part: PartitionId, delay: float) -> None:
    """Free a key for ``delay`` seconds without an attempt."""
    fence(store, owner, lease)
    ready = _leased_row(store, lease, part)
    store.set_due(ready, store.later(delay), lease=None, takeovers=0)


def suspect(store: MemoryStore, owner: Owner, lease: LeaseId, part: PartitionId) -> None:
    """Count one more owner of a key that others died with."""
    fence(store, owner, lease)
    ready = _leased_row(store, lease, part)
    store.ready.put(part, replace(ready, takeovers=min(ready.takeovers + 1, MAX_ATTEMPTS)))


def absolve(store: MemoryStore, owner: Owner, lease: LeaseId, part: PartitionId) -> None:
    """Take back what ``suspect`` counted."""
    fence(store, owner, lease)
    ready = store.ready.get(part)
    if ready is not None and ready.lease == lease and ready.takeovers > ALONE_FROM:
        store.ready.put(part, replace(ready, takeovers=ready.takeovers - 1))


def _leased_row(store: MemoryStore, lease: LeaseId, part: PartitionId) -> ReadyRow:
    ready = store.ready.get(part)
    if ready is None or ready.lease != lease:
        raise BrokenProtocol(READY_IS_GONE, f"ready row of partition {part} is gone")
    return ready


def hold(store: MemoryStore, owner: Owner, lease: LeaseId, parts: Sequence[PartitionId]) -> int:
    """Let those of the partitions that are held leave the group; how many did."""
    fence(store, owner, lease)
    held = 0
    for row in store.leased_by(lease):
        partition = store.partitions.get(row.part)
        if row.part in parts and partition is not None and partition.hold is not None:
            store.set_due(row, None, lease=None)
            held += 1
    return held


def release(store: MemoryStore, owner: Owner, leases: Iterable[LeaseId]) -> None:
    """Give leases back; those that are gone, or another's, are passed over."""
    for lease in leases:
        row = store.leases.get(lease)
        if row is not None and row.owner == owner.id:
            store.leases.drop(lease)
            for ready in store.leased_by(lease):
                store.ready.put(ready.part, replace(ready, lease=None))


def take_over(store: MemoryStore) -> list[TakenOver]:
    """Take every expired lease that no open transaction holds."""
    now = store.now()
    expired = [row for row in store.leases.values() if row.expires_at < now and not store.is_lease_in_use(row.id)]
    for row in expired:
        store.leases.drop(row.id)
        for ready in store.leased_by(row.id):
            takeovers = ready.takeovers + (ready.takeovers < ALONE_FROM)
            store.ready.put(ready.part, replace(ready, lease=None, takeovers=takeovers))
    return [TakenOver(row.id, row.run, row.worker, row.parts) for row in expired]


def renew(store: MemoryStore, owner: Owner, leases: Iterable[LeaseId], ttl: float) -> set[LeaseId]:
    """Extend own leases, expired ones that still exist too; returns those extended."""
    mine = {lease for lease in leases if (row := store.leases.get(lease)) is not None and row.owner == owner.id}
    for lease in mine:
        store.leases.put(lease, replace(store.leases[lease], expires_at=store.later(ttl)))
    return mine


def sweep(store: MemoryStore, run: Run, idle_seconds: float, slice_size: int) -> int:
    """Remove idle partitions among the next ids; how many, -1 when the cursor is taken or missing."""
    cursor = store.cursors.get(run)
    if cursor is None or store.is_cursor_taken(run):
        return -1
    ids = sorted(part for part in store.partitions if part > cursor.sweep)[:slice_size]
    before = store.now() - timedelta(seconds=idle_seconds)
    removed = 0
    for part in ids:
        row = store.partitions[part]
        is_busy = part in store.ready or part in store.inbox or part in store.failures
        if row.run == run and row.hold is None and row.touched_at < before and not is_busy:
            store.drop_partition(row)
            removed += 1
    store.cursors.put(run, replace(cursor, sweep=ids[-1] if ids else FIRST_SLICE))
    return removed
