"""Statistics of subscriptions: the rows of ``stats_v1``.

Reads a bounded number of index entries whatever the backlog. Nothing of the engine depends on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from headrace.domain.ids import Position
from headrace.store.mapping import EventTable
from headrace.store.pool import Database, Session
from headrace.store.queries import quoted


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """One row of ``stats_v1``, column by column; times in seconds unless they are points in time.

    ``unrouted``, ``held`` and ``waiting`` are exact while they are small, estimated beyond.
    """

    subscription: str
    app: str
    group_name: str
    status: str
    status_reason: str | None
    position: Position
    head: Position
    horizon_held_seconds: float | None
    unrouted: int
    held: int
    inboxed: int
    waiting: int
    in_flight: int
    oldest_seconds: float | None
    pending_partitions: int
    touched_partitions: int
    largest_partition: int
    parked: int
    next_due_at: datetime | None
    arrivals_total: int
    processed_total: int
    busy_seconds_total: float
    workers: int
    capacity: int
    sampled_at: datetime


async def stats(database: Database, names: Sequence[str] | None = None) -> list[SubscriptionStats]:
    """Return the statistics of all subscriptions, or of those named, by name."""
    async with database.session() as session:
        rows = await session.fetch(database.queries.stats, None if names is None else list(names))
    return [SubscriptionStats(**dict(row)) for row in rows]


async def save_source(session: Session, table: EventTable) -> None:
    """Let statistics count in a mapped event table; nothing happens for our own."""
    if table.source is None:
        return
    mapping = table.mapping
    relation = f"{quoted(mapping.schema)}.{quoted(mapping.table)}"
    await session.execute(
        session.queries.source_save, table.source, relation, table.sequence_name, mapping.exact, str(table.events)
    )
