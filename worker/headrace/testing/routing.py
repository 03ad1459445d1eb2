"""The router's port in memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from headrace.domain.errors import KeyNotMade
from headrace.domain.event import Event, EventFilter
from headrace.domain.ids import PartitionKey, Position, Run
from headrace.partitioning.keys import Partitioner, key_of
from headrace.ports.routing import BadKey, RouteOutcome, RouteResult, Unrouted
from headrace.testing import protocol
from headrace.testing.appending import read_page
from headrace.testing.memory import CursorRow, MemoryStore, ReadyRow

R = TypeVar("R")


class MemoryRouting:
    """Implements ``ports.routing.Routing``."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def route(
        self,
        run: Run,
        partitioner: object,
        wanted: EventFilter,
        horizon: Position,
        limit: int,
        declared: str | None = None,
    ) -> RouteResult:
        """Route the next events by a built-in partitioner."""
        keys = cast("Partitioner", partitioner)
        return await self._do(lambda: self._route(run, keys, wanted, horizon, limit, declared))

    async def read_unrouted(
        self,
        run: Run,
        wanted: EventFilter,
        horizon: Position,
        limit: int,
        max_bytes: int,
        declared: str | None = None,
    ) -> Unrouted:
        """Read the next events for a partitioner in Python."""
        await self._store.round_trip()
        cursor = self._store.cursors.get(run)
        if cursor is None or not self._store.is_running(run, declared):
            return Unrouted(RouteOutcome.STANDING)
        page = read_page(self._store, cursor.position, self._store.line_of(run, horizon), wanted, limit, max_bytes)
        return Unrouted(RouteOutcome.ROUTED, cursor.position, page.last, page.events, not page.more)

    async def store_routes(
        self,
        run: Run,
        read_from: Position,
        last: Position,
        routes: Sequence[tuple[Position, str]],
        declared: str | None = None,
    ) -> RouteResult:
        """Insert pairs and move the cursor, if it is still where they were read from."""
        return await self._do(lambda: self._store_routes(run, read_from, last, routes, declared))

    async def pass_over(self, run: Run, position: Position) -> bool:
        """Move the cursor onto the next wanted event; waits for whoever routes now."""
        await self._store.wait_for_cursor(run)
        return await self._do(lambda: self._pass_over(run, position))

    async def sweep(self, run: Run, idle_seconds: float, slice_size: int) -> int:
        """Remove idle partitions."""
        return await self._do(lambda: protocol.sweep(self._store, run, idle_seconds, slice_size))

    async def _do(self, statement: Callable[[], R]) -> R:
        await self._store.round_trip()
        with self._store.journal.atomic():
            return statement()

    def _route(
        self,
        run: Run,
        partitioner: Partitioner,
        wanted: EventFilter,
        horizon: Position,
        limit: int,
        declared: str | None,
    ) -> RouteResult:
        cursor = self._store.cursors.get(run)
        if cursor is None or self._store.is_cursor_taken(run):
            return RouteResult(RouteOutcome.BUSY)
        if not self._store.is_running(run, declared):
            return RouteResult(RouteOutcome.STANDING, cursor.position)
        line = self._store.line_of(run, horizon)
        batch: list[Event[Any]] = []
        for event in self._store.log.after(cursor.position, line, wanted):
            if len(batch) > limit:
                break
            batch.append(event)
        has_more, batch = len(batch) > limit, batch[:limit]
        routes, bad = _keys(partitioner, batch)
        if bad is not None:
            last = max(self._store.log.last_at(Position(bad.position - 1)), cursor.position)
        else:
            last = batch[-1].position if has_more else max(self._store.log.last_at(line), cursor.position)
        result = self._insert(run, cursor, last, routes)
        return replace(result, complete=bad is None and not has_more, bad=bad)

    def _store_routes(
        self,
        run: Run,
        read_from: Position,
        last: Position,
        routes: Sequence[tuple[Position, str]],
        declared: str | None,
    ) -> RouteResult:
        cursor = self._store.cursors.get(run)
        if cursor is None or self._store.is_cursor_taken(run):
            return RouteResult(RouteOutcome.BUSY)
        if cursor.position != read_from:
            return RouteResult(RouteOutcome.MOVED, cursor.position)
        if not self._store.is_running(run, declared):
            return RouteResult(RouteOutcome.STANDING, cursor.position)
        result = self._insert(run, cursor, last, [(position, PartitionKey(key)) for position, key in routes])
        # Complete as far as it was told; what else is left only the read can know.
        return replace(result, complete=True)

    def _pass_over(self, run: Run, position: Position) -> bool:
        cursor, subscription = self._store.cursors.get(run), self._store.subscription_of(run)
        if cursor is None or subscription is None:
            return False
        following = next(self._store.log.after(cursor.position, None, subscription.declared.wanted), None)
        if following is None or following.position != position:
            return False
        self._store.cursors.put(run, replace(cursor, position=position))
        return True

    def _insert(
        self, run: Run, cursor: CursorRow, last: Position, routes: Sequence[tuple[Position, PartitionKey]]
    ) -> RouteResult:
        by_key: dict[PartitionKey, list[Position]] = {}
        for position, key in routes:
            by_key.setdefault(key, []).append(position)
        created = activated = 0
        for key, positions in by_key.items():
            is_new = (run, key) not in self._store.keys
            part = self._store.make_partition(run, key).id if is_new else self._store.keys[run, key]
            created += is_new
            self._store.inbox.put(part, tuple(sorted((*self._store.inbox.get(part, ()), *positions))))
            ready = self._store.ready.get(part)
            if ready is None:
                row = ReadyRow(
                    part, run, len(positions), min(positions), self._store.now(), self._store.next_of("turn")
                )
                self._store.ready.put(part, row)
                activated += 1
            else:
                # Nothing else: a key that is due later, or leased, must not be woken by what arrives.
                self._store.ready.put(part, replace(ready, backlog=ready.backlog + len(positions)))
        moved = replace(
            cursor,
            position=last,
            routed=cursor.routed + len(routes),
            activated=cursor.activated + activated,
            created=cursor.created + created,
        )
        self._store.cursors.put(run, moved)
        return RouteResult(RouteOutcome.ROUTED, last, len(routes), activated, created)


def _keys(
    partitioner: Partitioner, batch: Sequence[Event[Any]]
) -> tuple[list[tuple[Position, PartitionKey]], BadKey | None]:
    """Return the keys up to the first event that has no usable one."""
    routes: list[tuple[Position, PartitionKey]] = []
    for event in batch:
        try:
            key = key_of(partitioner, event)
        except KeyNotMade as error:
            return routes, BadKey(event.position, event.type, str(error))
        if key is not None:
            routes.append((event.position, key))
    return routes, None
