"""The router's port on PostgreSQL.

One batch is one transaction of two statements: the cursor row lock, then everything else in a later
snapshot. No key of a built-in partitioner ever leaves the server. Nothing here decides when to route.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import asyncpg

from headrace.domain.errors import TransactionAborted
from headrace.domain.event import EventFilter
from headrace.domain.ids import MAX_KEY_BYTES, Position, Run
from headrace.domain.subscription import Status
from headrace.partitioning.keys import Partitioner, spec_of
from headrace.ports.routing import BadKey, RouteOutcome, RouteResult, Unrouted
from headrace.store.batches import BatchReader, Reading, arrays
from headrace.store.events import event_of
from headrace.store.mapping import EventTable
from headrace.store.partition_keys import key_expression
from headrace.store.pool import Database, Session


class PostgresRouting:
    """Implements ``ports.routing.Routing`` for subscriptions that read one event table."""

    def __init__(self, database: Database, table: EventTable) -> None:
        self._database = database
        self._table = table
        self._queries = database.queries
        self._reader = BatchReader(self._queries, table)

    async def route(
        self,
        run: Run,
        partitioner: object,
        wanted: EventFilter,
        horizon: Position,
        limit: int,
        declared: str | None = None,
    ) -> RouteResult:
        """Route the next wanted events by a built-in partitioner; see the port.

        ``complete`` speaks of what may be routed now: while booting, of what lies up to the boot target.

        Raises:
            TypeError: the partitioner is not a built-in one, so only Python can make its keys.
            TransactionAborted: somebody made a partition without the cursor lock; route again.

        """
        query, reading = self._route_query(run, partitioner, wanted, limit)
        async with self._database.session() as session, session.transaction():
            cursor = await self._lock(session, run)
            if cursor is None:
                return RouteResult(RouteOutcome.BUSY)
            before = Position(cursor["position"])
            row = await session.fetchrow(
                query,
                run,
                before,
                horizon,
                limit + 1,
                *arrays(wanted),
                reading.window,
                cursor["boot_target"],
                MAX_KEY_BYTES,
                declared,
            )
            result = _result(row, before)
        if result.outcome is RouteOutcome.ROUTED and result.bad is None:
            self._reader.learn(run, reading, wanted, result.routed, limit, result.position - before)
        return result

    async def read_unrouted(
        self,
        run: Run,
        wanted: EventFilter,
        horizon: Position,
        limit: int,
        max_bytes: int,
        declared: str | None = None,
    ) -> Unrouted:
        """Read the next wanted events for a partitioner in Python; see the port."""
        async with self._database.session() as session, session.transaction():
            head = await session.fetchrow(self._reader.head("unrouted_head"), run, declared)
            if head is None or not Status(head["status"]).is_running:
                return Unrouted(RouteOutcome.STANDING)
            before = Position(head["position"])
            line = min(horizon, head["boot_target"]) if head["status"] == Status.BOOTING else horizon
            rows = await self._reader.read(session, run, before, line, wanted, limit, max_bytes)
        events = tuple(event_of(row, self._table.decode) for row in rows if row["position"] is not None)
        return Unrouted(RouteOutcome.ROUTED, before, Position(rows[0]["last_row"]), events, rows[0]["complete"])

    async def store_routes(
        self,
        run: Run,
        read_from: Position,
        last: Position,
        routes: Sequence[tuple[Position, str]],
        declared: str | None = None,
    ) -> RouteResult:
        """Store keys that Python made, if the cursor is still where they were read from; see the port."""
        positions, keys = [position for position, _ in routes], [key for _, key in routes]
        query = self._queries.render("route", batch=self._queries.fragment("batch_given"))
        async with self._database.session() as session, session.transaction():
            cursor = await self._lock(session, run)
            if cursor is None:
                return RouteResult(RouteOutcome.BUSY)
            if cursor["position"] != read_from:
                return RouteResult(RouteOutcome.MOVED, Position(cursor["position"]))
            row = await session.fetchrow(query, run, read_from, positions, keys, last, declared)
            return _result(row, read_from)

    async def pass_over(self, run: Run, position: Position) -> bool:
        """Move the cursor onto the next wanted event without routing it; see the port."""
        async with self._database.session() as session, session.transaction():
            cursor = await session.fetchrow(self._reader.head("pass_over_lock"), run)
            if cursor is None:
                return False
            query = self._queries.render("pass_over", events=self._table.events)
            return await session.fetchval(query, run, cursor["position"], position) is not None

    async def sweep(self, run: Run, idle_seconds: float, slice_size: int) -> int:
        """Remove idle partitions among the next ids; see the port."""
        async with self._database.session() as session:
            removed: int = await session.fetchval(self._queries.sweep, run, timedelta(seconds=idle_seconds), slice_size)
            return removed

    def _route_query(self, run: Run, partitioner: object, wanted: EventFilter, limit: int) -> tuple[str, Reading]:
        spec = spec_of(partitioner) if isinstance(partitioner, Partitioner) else None
        if spec is None:
            raise TypeError(f"{partitioner!r} cannot be pushed down: read_unrouted, make the keys, store_routes")
        queries = self._queries
        reading = self._reader.reading(run, wanted, limit + 1, "upto_running")
        batch = queries.fragment(
            "batch_in_store",
            key=key_expression(spec, queries),
            batch=reading.batch,
            stop=reading.stop,
            last_row=reading.last_row,
            events=self._table.events,
        )
        return queries.render("route", batch=batch), reading

    async def _lock(self, session: Session, run: Run) -> asyncpg.Record | None:
        return await session.fetchrow(self._reader.head("route_lock"), run)


def _result(row: asyncpg.Record | None, before: Position) -> RouteResult:
    """Return what a batch came to.

    Raises:
        TransactionAborted: not every event of the batch reached an inbox; everything must be rolled back.

    """
    if row is None or not row["running"]:
        return RouteResult(RouteOutcome.STANDING, before)
    if row["routed"] != row["wanted"]:
        raise TransactionAborted(
            f"{row['wanted'] - row['routed']} of {row['wanted']} events found no partition: somebody made partitions "
            "beside the router, without the cursor row lock; nothing was stored"
        )
    return RouteResult(
        RouteOutcome.ROUTED,
        Position(before if row["position"] is None else row["position"]),
        row["routed"],
        row["activated"],
        row["created"],
        row["complete"],
        _bad_key(row),
    )


def _bad_key(row: Any) -> BadKey | None:
    if row["bad_position"] is None:
        return None
    return BadKey(
        Position(row["bad_position"]),
        row["bad_type"],
        f"no partition key for the event at position {row['bad_position']} of type {row['bad_type']!r}: the key has "
        f"{row['bad_bytes']:,} UTF-8 bytes, more than {MAX_KEY_BYTES:,}: wrap the partitioner, Hashed(...), which "
        "takes any length",
    )
