"""The status of subscriptions on PostgreSQL; only reads, takes no lock, and costs the same with a million keys."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from headrace.domain.ids import PartitionKey, Position
from headrace.domain.subscription import ErrorClass, Kind, Status
from headrace.ports.status import LiveWorker, PartitionStanding, Standing
from headrace.ports.work import FailureState
from headrace.store.pool import Database


class PostgresStatus:
    """Implements ``ports.status.StatusReader``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = database.queries

    async def standings(self, names: Sequence[str] | None = None) -> list[Standing]:
        """Return the named subscriptions (all when None), by name."""
        async with self._database.session() as session:
            rows = await session.fetch(self._queries.status_of_subscriptions, None if names is None else list(names))
        return [_standing(row) for row in rows]

    async def partitions(self, name: str, limit: int) -> list[PartitionStanding]:
        """Return at most ``limit`` partitions with work; see the port."""
        async with self._database.session() as session:
            rows = await session.fetch(self._queries.status_of_partitions, name, limit)
        return [_partition(row) for row in rows]

    async def workers(self) -> list[LiveWorker]:
        """Return the live workers of this database."""
        async with self._database.session() as session:
            rows = await session.fetch(self._queries.status_of_workers)
        return [LiveWorker(**{**row, "subscriptions": tuple(row["subscriptions"])}) for row in rows]


def _standing(row: asyncpg.Record) -> Standing:
    facts: dict[str, Any] = dict(row)
    return Standing(
        **{
            **facts,
            "status": Status(facts["status"]),
            "notes": tuple(facts["notes"]),
            "kind": Kind(facts["kind"]),
            "error_class": None if facts["error_class"] is None else ErrorClass(facts["error_class"]),
            "position": Position(facts["position"] or 0),
            "horizon_held_seconds": _seconds(facts["horizon_held_seconds"]),
            "oldest_seconds": _seconds(facts["oldest_seconds"]),
            "busy_seconds_total": float(facts["busy_seconds_total"] or 0),
        }
    )


def _seconds(value: Any) -> float | None:
    return None if value is None else float(value)


def _partition(row: asyncpg.Record) -> PartitionStanding:
    return PartitionStanding(
        key=PartitionKey(row["key"]),
        position=Position(row["position"]),
        backlog=row["backlog"],
        first_position=Position(row["first_pos"]),
        due_at=row["due_at"],
        attempts=max(row["attempts"], 0),
        takeovers=row["takeovers"],
        hold=row["hold"],
        worker=row["worker"],
        expires_at=row["expires_at"],
        failure=None if row["state"] is None else FailureState(row["state"]),
        error=row["error"],
    )
