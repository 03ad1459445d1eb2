"""The lanes' port in memory: claims, loads, and transactions whose effects come all at once or never.

A transaction here is a list of operations. Each is rehearsed on the tables when it is called, so that
it answers and refuses at once, and all are done for good when the block ends without an error.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from headrace.domain.errors import HandlerTimeout, NotAllowed, TransactionAborted
from headrace.domain.event import Event, EventFilter
from headrace.domain.ids import LeaseId, PartitionId, Position, Run
from headrace.ports.clock import Identity
from headrace.ports.connection import Connection
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
from headrace.testing import protocol
from headrace.testing.appending import read_page, seen_by, size_of
from headrace.testing.connection import RecordedConnection
from headrace.testing.memory import MemoryStore, PartitionRow
from headrace.testing.protocol import Owner

R = TypeVar("R")


class MemoryWork:
    """Implements ``ports.work.Work`` for one worker."""

    def __init__(self, store: MemoryStore, identity: Identity) -> None:
        self._store = store
        self._owner = Owner(identity.id, identity.name)

    async def due(self, runs: Sequence[Run]) -> list[DueRun]:
        """Look which runs have partitions due."""
        await self._store.round_trip()
        return [found for run in runs if (found := self._due_run(run)) is not None]

    async def claim(self, request: ClaimRequest) -> ClaimGroup | None:
        """Claim due partitions."""
        parts = await self._do(lambda: protocol.claim(self._store, self._owner, request))
        return ClaimGroup(request.run, request.lease, parts) if parts else None

    async def claim_log(self, request: ClaimRequest, horizon: Position) -> ClaimGroup | None:
        """Claim the one partition of an unpartitioned run when there is something to read."""
        part = await self._do(lambda: self._claim_log(request, horizon))
        return ClaimGroup(request.run, request.lease, (part,)) if part else None

    async def load(
        self, group: ClaimGroup, limit: int, max_events: int, max_bytes: int, declared: str | None = None
    ) -> Loaded:
        """Load what a group has to do."""
        await self._store.round_trip()
        if not self._store.is_running(group.run, declared):
            return Loaded(standing=True)
        ids = sorted(part.part for part in group.parts)
        rows = [row for part in ids if (row := self._store.partitions.get(part)) is not None]
        held = tuple(row.id for row in rows if row.hold is not None)
        budget = _Budget(max_events, max_bytes)
        claimed = {part.part: part for part in group.parts}
        loaded = [
            partition
            for row in rows
            if row.hold is None and (partition := self._load_partition(row, claimed[row.id], limit, budget)) is not None
        ]
        return Loaded(tuple(loaded), held)

    async def load_log(
        self,
        group: ClaimGroup,
        wanted: EventFilter,
        horizon: Position,
        limit: int,
        max_bytes: int,
        declared: str | None = None,
    ) -> Loaded:
        """Load the next events of the whole log."""
        await self._store.round_trip()
        if not self._store.is_running(group.run, declared):
            return Loaded(standing=True)
        claimed = group.parts[0]
        row = self._store.partitions[claimed.part]
        if row.hold is not None:
            return Loaded(held=(row.id,))
        page = read_page(self._store, row.position, self._store.line_of(group.run, horizon), wanted, limit, max_bytes)
        events = tuple(self._seen(event, row) for event in page.events)
        return Loaded(
            (LoadedPartition(row.id, row.key, row.position, claimed.attempts, claimed.takeovers, events, to=page.last),)
        )

    @asynccontextmanager
    async def begin(self, group: ClaimGroup, idle_seconds: float) -> AsyncIterator["MemoryTransaction"]:
        """Open the group's transaction behind its fence."""
        await self._store.round_trip()
        protocol.fence(self._store, self._owner, group.lease)
        transaction = MemoryTransaction(self._store, self._owner, group.lease, idle_seconds)
        with self._store.lease_in_use(group.lease, transaction.is_open):
            try:
                yield transaction
                await transaction.commit()
            finally:
                transaction.close()

    async def flush(self, flush: Flush) -> Flushed:
        """Flush on its own."""
        return await self._do(lambda: protocol.flush(self._store, self._owner, flush))

    async def fail(self, failure: KeyFailure) -> int:
        """Record a failure on its own."""
        return await self._do(lambda: protocol.fail(self._store, self._owner, failure))

    async def slow(self, lease: LeaseId, part: PartitionId, delay: float) -> None:
        """Free a key for a while on its own."""
        await self._do(lambda: protocol.slow(self._store, self._owner, lease, part, delay))

    async def suspect(self, lease: LeaseId, part: PartitionId) -> None:
        """Count one more owner of a key that others died with."""
        await self._do(lambda: protocol.suspect(self._store, self._owner, lease, part))

    async def absolve(self, lease: LeaseId, part: PartitionId) -> None:
        """Take back what ``suspect`` counted."""
        await self._do(lambda: protocol.absolve(self._store, self._owner, lease, part))

    async def hold(self, lease: LeaseId, parts: Sequence[PartitionId]) -> int:
        """Let held partitions leave."""
        return await self._do(lambda: protocol.hold(self._store, self._owner, lease, parts))

    async def release(self, leases: Sequence[LeaseId]) -> None:
        """Give leases back, as soon as no transaction of theirs is open."""
        for lease in leases:
            await self._store.wait_for_lease(lease)
        await self._do(lambda: protocol.release(self._store, self._owner, leases))

    async def renew(self, leases: Sequence[LeaseId], ttl: float) -> set[LeaseId]:
        """Extend leases."""
        return await self._do(lambda: protocol.renew(self._store, self._owner, leases, ttl))

    async def take_over(self) -> list[TakenOver]:
        """Take expired leases."""
        return await self._do(lambda: protocol.take_over(self._store))

    async def _do(self, statement: Callable[[], R]) -> R:
        await self._store.round_trip()
        with self._store.journal.atomic():
            return statement()

    def _due_run(self, run: Run) -> DueRun | None:
        row = self._store.subscription_of(run)
        if row is None:
            return None
        now = self._store.now()
        ready = [ready for ready in self._store.ready_of(run) if ready.lease is None and ready.due_at is not None]
        due = any(ready.is_due(now) for ready in ready)
        later = [(ready.due_at - now).total_seconds() for ready in ready if ready.due_at is not None]
        next_due_in = None if due or not later else min(later)
        return DueRun(run, row.stored.status.value, row.stored.epoch, due, next_due_in)

    def _claim_log(self, request: ClaimRequest, horizon: Position) -> ClaimedPart | None:
        subscription, cursor = self._store.subscription_of(request.run), self._store.cursors.get(request.run)
        if subscription is None or cursor is None or not subscription.stored.status.is_running:
            return None
        line = self._store.line_of(request.run, horizon)
        now = self._store.now()
        due = [row for row in self._store.ready_of(request.run) if row.is_due(now)]
        if not due or not self._store.is_behind(self._store.partitions[due[0].part].position, line):
            return None
        (part, *_) = protocol.claim(self._store, self._owner, replace(request, lanes=1))
        return part

    def _load_partition(
        self, row: PartitionRow, claimed: ClaimedPart, limit: int, budget: "_Budget"
    ) -> LoadedPartition | None:
        events: list[Event[Any]] = []
        vanished: list[Position] = []
        for position in self._store.inbox.get(row.id, ())[:limit]:
            event = self._store.log.get(position)
            if not budget.takes(0 if event is None else size_of(event)):
                break
            if event is None:
                vanished.append(position)
            else:
                events.append(self._seen(event, row))
        if not events and not vanished:
            return None
        return LoadedPartition(
            row.id, row.key, row.position, claimed.attempts, claimed.takeovers, tuple(events), tuple(vanished)
        )

    def _seen(self, event: Event[Any], row: PartitionRow) -> Event[Any]:
        subscription = self._store.subscription_of(row.run)
        return seen_by(event, subscription.stored.name if subscription else "", row.key)


@dataclass(slots=True)
class _Budget:
    """How much one load may still return; the first event always fits."""

    events: int
    size: int
    is_fresh: bool = True

    def takes(self, size: int) -> bool:
        """Take one event if it fits."""
        fits = self.is_fresh or (self.events > 0 and size <= self.size)
        self.is_fresh = False
        if fits:
            self.events -= 1
            self.size -= size
        else:
            self.events = 0
        return fits


@dataclass(slots=True)
class MemoryTransaction:
    """Implements ``ports.work.WorkTransaction``."""

    _store: MemoryStore
    _owner: Owner
    _lease: LeaseId
    _idle_seconds: float
    _operations: list[Callable[[], Any]] = field(default_factory=list)
    _has_failed: bool = False
    _connection: RecordedConnection = field(init=False)
    _last_statement: datetime = field(init=False)

    def __post_init__(self) -> None:
        self._connection = RecordedConnection(self._store.respond, self._check_state, self._note_error)
        self._last_statement = self._store.now()

    @property
    def connection(self) -> Connection:
        """What handlers write through."""
        return self._connection

    def is_open(self) -> bool:
        """Whether the server would not have ended the session for being idle."""
        return (self._store.now() - self._last_statement).total_seconds() <= self._idle_seconds

    async def settle(self) -> None:
        """Send what was deferred, if the rest was awaited."""
        await self._store.round_trip()
        self._connection.require_awaited()
        self._connection.settle()

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """Undo what the body did, and drop what it deferred, when it raises."""
        await self.settle()
        operations, sent = len(self._operations), len(self._connection.sent)
        try:
            yield
            if self._has_failed:
                raise NotAllowed("a statement of this handler has failed, and the handler has gone on: let errors pass")
            await self.settle()
        except BaseException:
            del self._operations[operations:]
            del self._connection.sent[sent:]
            self._connection.drop_unsent()
            self._has_failed = False
            raise

    async def flush(self, flush: Flush) -> Flushed:
        """Write a flush with the transaction."""
        await self.settle()
        return self._add(partial(protocol.flush, self._store, self._owner, flush, fenced=True))

    async def fail(self, failure: KeyFailure) -> int:
        """Write a failure with the transaction."""
        await self.settle()
        return self._add(partial(protocol.fail, self._store, self._owner, failure))

    async def slow(self, part: PartitionId, delay: float) -> None:
        """Free a key for a while with the transaction."""
        await self.settle()
        self._add(partial(protocol.slow, self._store, self._owner, self._lease, part, delay))

    def close(self) -> None:
        """Let nobody write through it any more."""
        self._connection.close()

    async def commit(self) -> None:
        """Do everything for good."""
        await self.settle()
        self._check_state()
        with self._store.journal.atomic():
            self._run_all()
        self._store.executed.extend(self._connection.sent)

    def _add(self, operation: Callable[[], R]) -> R:
        self._check_state()

        def with_earlier_ones() -> R:
            self._run_all()
            return operation()

        try:
            answer = self._store.journal.rehearse(with_earlier_ones)
        except BaseException:
            self._note_error()
            raise
        self._operations.append(operation)
        return answer

    def _run_all(self) -> None:
        for operation in self._operations:
            operation()

    def _check_state(self) -> None:
        if not self.is_open():
            raise HandlerTimeout("the transaction was idle for too long: declare a longer time with timeout= (seconds)")
        if self._has_failed:
            raise TransactionAborted("a statement of this transaction has failed: nothing more can be done in it")
        self._last_statement = self._store.now()

    def _note_error(self) -> None:
        self._has_failed = True
