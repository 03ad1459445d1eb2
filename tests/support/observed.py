"""What can be seen of the protocol's tables, by names and keys instead of ids and clock times.

Two implementations that did the same have equal observations: ids, times and the order of rows may
differ, nothing else.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headrace.domain.ids import PartitionId, Run
from headrace.testing.memory import MemoryStore

SECONDS = 100.0
"""Times are compared in steps of so many seconds: scenarios keep away from the middle between two steps."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Rows as values, by what names them for people."""

    subscriptions: dict[str, Any] = field(default_factory=dict)
    cursors: dict[str, Any] = field(default_factory=dict)
    partitions: dict[tuple[str, str], Any] = field(default_factory=dict)
    inbox: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    ready: dict[tuple[str, str], Any] = field(default_factory=dict)
    leases: dict[int, Any] = field(default_factory=dict)
    failures: dict[tuple[str, str], Any] = field(default_factory=dict)
    counters: dict[tuple[str, int], Any] = field(default_factory=dict)
    audit: list[Any] = field(default_factory=list)


def observe(store: MemoryStore, step: float = SECONDS) -> Observed:
    """Return the observation of a store, or of PostgreSQL's rows loaded into one; times in steps of so many seconds."""
    name = {row.stored.run: row.stored.name for row in store.subscriptions.values()}

    def place(part: PartitionId) -> tuple[str, str]:
        row = store.partitions[part]
        return name_of(row.run), str(row.key)

    def name_of(run: Run) -> str:
        return name.get(run, f"old run {run}")

    def seconds(at: datetime | None) -> float | None:
        return None if at is None else round((at - store.now()).total_seconds() / step) * step

    def due(at: datetime | None) -> object:
        return "due" if at is not None and at <= store.now() else seconds(at)

    return Observed(
        subscriptions={
            row.stored.name: (
                row.stored.status,
                row.stored.prev_status,
                row.stored.epoch,
                row.stored.error_class,
                row.stored.reason,
                row.stored.tries,
                seconds(row.stored.retry_at),
                row.stored.kind,
                row.stored.group,
                row.stored.app,
            )
            for row in store.subscriptions.values()
        },
        cursors={
            name_of(run): (row.position, row.boot_target, row.routed, row.activated, row.created)
            for run, row in store.cursors.items()
        },
        partitions={place(row.id): (row.position, row.hold) for row in store.partitions.values()},
        inbox={place(part): entries for part, entries in store.inbox.items()},
        ready={
            place(row.part): (row.backlog, row.first_pos, due(row.due_at), row.lease, row.attempts, row.takeovers)
            for row in store.ready.values()
        },
        leases={
            row.id: (
                name_of(row.run),
                row.purpose,
                row.owner,
                row.worker,
                row.parts,
                row.events,
                seconds(row.expires_at),
            )
            for row in store.leases.values()
        },
        failures={
            place(row.part): (
                row.position,
                row.state,
                row.attempts,
                row.failure_class,
                row.error_type,
                row.error,
                row.worker,
                seconds(row.first_failed_at),
                seconds(row.failed_at),
                seconds(row.next_retry_at),
            )
            for row in store.failures.values()
        },
        counters={
            (name_of(run), slot): (row.handled, row.drained, row.skipped, row.parked, row.busy_us)
            for (run, slot), row in store.counters.items()
        },
        audit=sorted((row.who, row.verb, row.subscription, row.key, row.position, row.why) for row in store.audit),
    )
