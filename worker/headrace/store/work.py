"""The lanes' port on PostgreSQL: claim, load, work, flush, give back.

Each call is one statement; what reads events runs in a short transaction of its own. Claiming never looks at the status
of the subscription, loading does, after the claim has committed: either a command that stops the
subscription sees the lease, or the load sees the command.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg

from headrace.domain.event import Event, EventFilter, SourceDecoder
from headrace.domain.ids import LeaseId, PartitionId, PartitionKey, Position, Run
from headrace.domain.subscription import Status
from headrace.ports.clock import Identity
from headrace.ports.work import (
    ClaimedPart,
    ClaimGroup,
    ClaimRequest,
    DueRun,
    Flush,
    Flushed,
    KeyFailure,
    Loaded,
    LoadedPartition,
    TakenOver,
)
from headrace.store import flushing
from headrace.store.batches import BatchReader
from headrace.store.events import event_of
from headrace.store.guarded import guarded
from headrace.store.mapping import EventTable
from headrace.store.pool import Database
from headrace.store.transaction import PostgresTransaction


class PostgresWork:
    """Implements ``ports.work.Work`` for one worker process and one event table."""

    def __init__(self, database: Database, table: EventTable, identity: Identity) -> None:
        self._database = database
        self._queries = database.queries
        self._identity = identity
        self._reader = BatchReader(self._queries, table)
        self._decode = table.decode
        self._load = self._queries.render("load", events=table.events, data_size=table.data_size)
        self._claim_log = self._queries.render("claim_log", events=table.events)

    # --------------------------------------------------------------------------------------------------- claim and load

    async def due(self, runs: Sequence[Run]) -> list[DueRun]:
        """Look, in one statement, which runs have partitions due and unleased; see the port."""
        rows = await self._fetch(self._queries.due_runs, list(runs))
        return [_due_run(row) for row in rows]

    async def claim(self, request: ClaimRequest) -> ClaimGroup | None:
        """Claim due partitions, oldest first; see the port."""
        rows = await self._fetch(
            self._queries.claim,
            request.run,
            request.lease,
            self._identity.id,
            self._identity.name,
            request.lanes,
            request.parts,
            request.events,
            request.floor,
            timedelta(seconds=request.ttl),
        )
        return _group(request, rows)

    async def claim_log(self, request: ClaimRequest, horizon: Position) -> ClaimGroup | None:
        """Claim the one partition of an unpartitioned run when events wait for it; see the port."""
        async with guarded(self._database) as session:
            rows = await session.fetch(
                self._claim_log,
                request.run,
                request.lease,
                self._identity.id,
                self._identity.name,
                request.events,
                timedelta(seconds=request.ttl),
                horizon,
            )
        return _group(request, rows)

    async def load(
        self, group: ClaimGroup, limit: int, max_events: int, max_bytes: int, declared: str | None = None
    ) -> Loaded:
        """Load the inboxed events of a group, within both budgets; see the port."""
        parts = [part.part for part in group.parts]
        async with guarded(self._database) as session:
            rows = await session.fetch(
                self._load, group.run, parts, limit, max(max_events, 1), max(max_bytes, 1), declared
            )
        if not rows or not rows[0]["running"]:
            return Loaded(standing=True)
        claimed = {part.part: part for part in group.parts}
        found: dict[PartitionId, list[asyncpg.Record]] = {}
        for row in sorted(
            (row for row in rows if row["part"] is not None), key=lambda row: (row["part"], row["inboxed"])
        ):
            found.setdefault(row["part"], []).append(row)
        held = tuple(PartitionId(part) for part in rows[0]["held"] or ())
        return Loaded(tuple(_loaded(claimed[part], entries, self._decode) for part, entries in found.items()), held)

    async def load_log(
        self,
        group: ClaimGroup,
        wanted: EventFilter,
        horizon: Position,
        limit: int,
        max_bytes: int,
        declared: str | None = None,
    ) -> Loaded:
        """Load the next wanted events of an unpartitioned run; see the port. Two statements: where, then what."""
        claimed = group.parts[0]
        async with self._database.session() as session, session.transaction(snapshot=True):
            head = await session.fetchrow(self._reader.head("load_log_head"), group.run, claimed.part, declared)
            if head is None or not Status(head["status"]).is_running:
                return Loaded(standing=True)
            if head["hold"] is not None:
                return Loaded(held=(claimed.part,))
            position = Position(head["position"])
            line = min(horizon, head["boot_target"]) if head["status"] == Status.BOOTING else horizon
            rows = await self._reader.read(session, group.run, position, line, wanted, limit, max_bytes)
        key = PartitionKey(head["key"])
        events = tuple(_seen(row, head["name"], key, self._decode) for row in rows if row["position"] is not None)
        to = Position(rows[0]["last_row"])
        return Loaded(
            (LoadedPartition(claimed.part, key, position, claimed.attempts, claimed.takeovers, events, (), to),)
        )

    # --------------------------------------------------------------------------------------------------- work and flush

    @asynccontextmanager
    async def begin(self, group: ClaimGroup, idle_seconds: float) -> AsyncIterator[PostgresTransaction]:
        """Open the group's fenced transaction; see the port. It commits at the end of the block.

        Raises:
            LeaseLost: the lease row is gone.
            HandlerTimeout: the server ended the session, because it was idle for longer than ``idle_seconds``.

        """
        milliseconds = str(max(round(idle_seconds * 1000), 1))
        async with self._database.session() as session:
            try:
                async with session.transaction():
                    await session.execute(self._queries.fence, group.lease, self._identity.id, milliseconds)
                    session.expect_idle(idle_seconds)
                    transaction = PostgresTransaction(session, group.lease, self._identity)
                    try:
                        yield transaction
                        await transaction.finish()
                    finally:
                        transaction.connection.close()
            finally:
                session.expect_idle(None)

    async def flush(self, flush: Flush) -> Flushed:
        """Fence and flush in a transaction of their own; see the port."""
        async with self._database.session() as session:
            return await flushing.flush(session, self._identity, flush, fence=True)

    async def fail(self, failure: KeyFailure) -> int:
        """Fence and record a failure in a transaction of its own; see the port."""
        async with self._database.session() as session:
            return await flushing.fail(session, self._identity, failure)

    async def slow(self, lease: LeaseId, part: PartitionId, delay: float) -> None:
        """Fence and free a key for ``delay`` seconds; see the port."""
        async with self._database.session() as session:
            await flushing.slow(session, self._identity, lease, part, delay)

    # -------------------------------------------------------------------------------------------------------- give back

    async def suspect(self, lease: LeaseId, part: PartitionId) -> None:
        """Fence and count one more owner of a key that others died with; see the port."""
        async with self._database.session() as session:
            await flushing.suspect(session, self._identity, lease, part)

    async def absolve(self, lease: LeaseId, part: PartitionId) -> None:
        """Fence and take back what ``suspect`` counted; see the port."""
        await self._fetch(self._queries.absolve, lease, self._identity.id, part)

    async def hold(self, lease: LeaseId, parts: Sequence[PartitionId]) -> int:
        """Let held partitions leave the group; see the port."""
        async with self._database.session() as session:
            held: int = await session.fetchval(self._queries.hold, lease, self._identity.id, list(parts))
            return held

    async def release(self, leases: Sequence[LeaseId]) -> None:
        """Give leases back; see the port."""
        await self._fetch(self._queries.release, list(leases), self._identity.id)

    async def renew(self, leases: Sequence[LeaseId], ttl: float) -> set[LeaseId]:
        """Extend leases by ``ttl`` seconds from now; see the port."""
        rows = await self._fetch(self._queries.renew, list(leases), self._identity.id, timedelta(seconds=ttl))
        return {LeaseId(row["r"]) for row in rows}

    async def take_over(self) -> list[TakenOver]:
        """Take every expired lease whose owner has no transaction open; see the port."""
        rows = await self._fetch(self._queries.take_over)
        return [TakenOver(LeaseId(row["lease"]), Run(row["run"]), row["worker"], row["parts"]) for row in rows]

    async def _fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        async with self._database.session() as session:
            return await session.fetch(query, *arguments)


def _due_run(row: asyncpg.Record) -> DueRun:
    due = bool(row["due"])
    return DueRun(Run(row["run"]), row["status"], row["epoch"], due, None if due else row["due_in"])


def _group(request: ClaimRequest, rows: Sequence[asyncpg.Record]) -> ClaimGroup | None:
    parts = tuple(
        ClaimedPart(PartitionId(row["part"]), row["backlog"], row["attempts"], row["takeovers"]) for row in rows
    )
    return ClaimGroup(request.run, request.lease, parts) if parts else None


def _loaded(claimed: ClaimedPart, entries: Sequence[asyncpg.Record], decode: SourceDecoder | None) -> LoadedPartition:
    """Return one partition of a load from its inbox entries, in position order."""
    first = entries[0]
    key = PartitionKey(first["key"])
    return LoadedPartition(
        part=claimed.part,
        key=key,
        position=Position(first["reached"]),
        attempts=claimed.attempts,
        takeovers=claimed.takeovers,
        events=tuple(_seen(row, row["name"], key, decode) for row in entries if not row["vanished"]),
        vanished=tuple(Position(row["inboxed"]) for row in entries if row["vanished"]),
    )


def _seen(row: asyncpg.Record, subscription: str, key: PartitionKey, decode: SourceDecoder | None) -> Event[Any]:
    """Return an event as the handlers of one partition get it."""
    event = event_of(row, decode)
    event.subscription = subscription
    event.key = key
    return event
