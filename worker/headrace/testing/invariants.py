"""What must be true of the protocol's tables between any two statements.

I1 to I10, numbered as in the architecture page. The test suite runs the same function over rows read
from PostgreSQL.
"""

from collections.abc import Iterator
from datetime import timedelta

from headrace.testing.memory import CountersRow, MemoryStore, PartitionRow, ReadyRow

LONGEST_TTL = timedelta(hours=1)


def broken_invariants(store: MemoryStore, longest_ttl: timedelta = LONGEST_TTL) -> list[str]:
    """Return a sentence for each invariant that does not hold; empty when all do."""
    return [
        *_of_ready(store),
        *_of_orphans(store),
        *_of_counters(store),
        *_of_leases(store, longest_ttl),
        *_of_cursors(store),
    ]


def _of_ready(store: MemoryStore) -> Iterator[str]:
    for partition in store.partitions.values():
        entries, ready = store.inbox.get(partition.id, ()), store.ready.get(partition.id)
        where = f"partition {partition.id} ({partition.key!r})"
        if ready is None:
            if entries:
                yield f"I1: {where} has {len(entries)} inbox entries and no ready row"
            continue
        if _is_permanent(store, partition):
            if entries or ready.backlog:
                yield f"I1: {where} is unpartitioned and has a backlog"
        else:
            yield from _of_backlog(ready, entries, partition, where)
        if (ready.attempts != 0) != (partition.id in store.failures):
            yield f"I7: {where} has {ready.attempts} attempts, failure: {partition.id in store.failures}"
        if ready.due_at is None and partition.hold is None and not _waits(store, partition):
            yield f"I10: {where} is never due, neither held nor waiting for a person"


def _of_backlog(ready: ReadyRow, entries: tuple[int, ...], partition: PartitionRow, where: str) -> Iterator[str]:
    if ready.backlog != len(entries) or not entries:
        yield f"I1: {where} has a backlog of {ready.backlog} and {len(entries)} inbox entries"
    if entries and ready.first_pos != min(entries):
        yield f"I2: {where} starts at {ready.first_pos}, its inbox at {min(entries)}"
    if partition.position >= ready.first_pos:
        yield f"I5: {where} is at {partition.position}, its inbox starts at {ready.first_pos}"


def _is_permanent(store: MemoryStore, partition: PartitionRow) -> bool:
    row = store.subscription_of(partition.run)
    return row is not None and not row.stored.partitioned


def _waits(store: MemoryStore, partition: PartitionRow) -> bool:
    failure = store.failures.get(partition.id)
    return failure is not None and failure.next_retry_at is None


def _of_orphans(store: MemoryStore) -> Iterator[str]:
    for table, rows in (("inbox", store.inbox), ("ready", store.ready), ("failures", store.failures)):
        for part in rows:
            if part not in store.partitions:
                yield f"I4: {table} has rows of partition {part}, which does not exist"
    for ready in store.ready.values():
        if ready.lease is not None and ready.lease not in store.leases:
            yield f"I3: partition {ready.part} has lease {ready.lease}, which does not exist"


def _of_counters(store: MemoryStore) -> Iterator[str]:
    for run, cursor in store.cursors.items():
        row = store.subscription_of(run)
        if row is None or not row.stored.partitioned:
            continue
        total = CountersRow()
        for (counted_run, _), counters in store.counters.items():
            if counted_run == run:
                total = total.plus(counters)
        ready = store.ready_of(run)
        entries = sum(len(store.inbox.get(part.id, ())) for part in store.partitions.values() if part.run == run)
        if cursor.routed - total.handled - total.skipped != entries:
            yield (
                f"I6: run {run}: routed {cursor.routed} - handled {total.handled} - skipped {total.skipped} "
                f"is not the {entries} inbox entries"
            )
        if cursor.activated - total.drained != len(ready):
            yield (
                f"I6: run {run}: activated {cursor.activated} - drained {total.drained} "
                f"is not the {len(ready)} ready rows"
            )


def _of_leases(store: MemoryStore, longest_ttl: timedelta) -> Iterator[str]:
    latest = store.now() + longest_ttl
    for lease in store.leases.values():
        if lease.expires_at > latest:
            yield f"I8: lease {lease.id} expires at {lease.expires_at}, later than any lease may"


def _of_cursors(store: MemoryStore) -> Iterator[str]:
    for run, cursor in store.cursors.items():
        is_row = store.log.get(cursor.position) is not None or cursor.position in store.log.deleted
        if cursor.position and not is_row:
            yield f"I9: the cursor of run {run} is at {cursor.position}, where no event is"
