"""How a subscription stands when nothing is the matter: tests say what is different."""

from datetime import UTC, datetime

from headrace.domain.ids import Position
from headrace.domain.subscription import Kind, Status
from headrace.ports.status import Standing

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

IDLE = Standing(
    subscription="orders",
    app="shop",
    group_name="orders",
    status=Status.ACTIVE,
    status_reason=None,
    position=Position(1204),
    head=Position(1204),
    horizon_held_seconds=None,
    unrouted=0,
    held=0,
    inboxed=0,
    waiting=0,
    in_flight=0,
    oldest_seconds=None,
    pending_partitions=0,
    touched_partitions=0,
    largest_partition=0,
    parked=0,
    next_due_at=None,
    arrivals_total=1204,
    processed_total=1204,
    busy_seconds_total=1.5,
    workers=2,
    capacity=2,
    sampled_at=NOW,
    kind=Kind.PROJECTOR,
    partitioned=True,
    error_class=None,
    retry_at=None,
    backing_off=0,
    exact=True,
)
