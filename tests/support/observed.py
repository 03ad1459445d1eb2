"""What can be seen of the protocol's tables, by names and keys instead of ids and clock times.

Two implementations that did the same have equal observations: ids, times and the order of rows may
differ, nothing else.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headrace.domain.ids import PartitionId, Run
from headrace.testing.memory import FailureRow, LeaseRow, MemoryStore, ReadyRow, SubscriptionRow

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


@dataclass(frozen=True, slots=True)
class _Names:
    """What a store's ids and times are called in an observation."""

    store: MemoryStore
    step: float
    runs: dict[Run, str]

    def run(self, run: Run) -> str:
        return self.runs.get(run, f"old run {run}")

    def place(self, part: PartitionId) -> tuple[str, str]:
        row = self.store.partitions[part]
        return self.run(row.run), str(row.key)

    def seconds(self, at: datetime | None) -> float | None:
        return None if at is None else round((at - self.store.now()).total_seconds() / self.step) * self.step

    def due(self, at: datetime | None) -> object:
        return "due" if at is not None and at <= self.store.now() else self.seconds(at)


def observe(store: MemoryStore, step: float = SECONDS) -> Observed:
    """Return the observation of a store, or of PostgreSQL's rows loaded into one; times in steps of so many seconds."""
    names = _Names(store, step, {row.stored.run: row.stored.name for row in store.subscriptions.values()})
    return Observed(
        subscriptions={row.stored.name: _subscription(row, names) for row in store.subscriptions.values()},
        cursors={
            names.run(run): (row.position, row.boot_target, row.routed, row.activated, row.created)
            for run, row in store.cursors.items()
        },
        partitions={names.place(row.id): (row.position, row.hold) for row in store.partitions.values()},
        inbox={names.place(part): entries for part, entries in store.inbox.items()},
        ready={names.place(row.part): _ready(row, names) for row in store.ready.values()},
        leases={row.id: _lease(row, names) for row in store.leases.values()},
        failures={names.place(row.part): _failure(row, names) for row in store.failures.values()},
        counters={
            (names.run(run), slot): (row.handled, row.drained, row.skipped, row.parked, row.busy_us)
            for (run, slot), row in store.counters.items()
        },
        audit=sorted((row.who, row.verb, row.subscription, row.key, row.position, row.why) for row in store.audit),
    )


def _subscription(row: SubscriptionRow, names: _Names) -> tuple[object, ...]:
    stored = row.stored
    return (
        stored.status,
        stored.prev_status,
        stored.epoch,
        stored.error_class,
        stored.reason,
        stored.tries,
        names.seconds(stored.retry_at),
        stored.kind,
        stored.group,
        stored.app,
    )


def _ready(row: ReadyRow, names: _Names) -> tuple[object, ...]:
    return row.backlog, row.first_pos, names.due(row.due_at), row.lease, row.attempts, row.takeovers


def _lease(row: LeaseRow, names: _Names) -> tuple[object, ...]:
    return names.run(row.run), row.purpose, row.owner, row.worker, row.parts, row.events, names.seconds(row.expires_at)


def _failure(row: FailureRow, names: _Names) -> tuple[object, ...]:
    return (
        row.position,
        row.state,
        row.attempts,
        row.failure_class,
        row.error_type,
        row.error,
        row.worker,
        names.seconds(row.first_failed_at),
        names.seconds(row.failed_at),
        names.seconds(row.next_retry_at),
    )
