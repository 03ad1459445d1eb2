"""The failures of keys in memory, as commands see and end them."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from headrace.domain.errors import HeadraceError, NotAllowed, NotFound
from headrace.domain.ids import Address, PartitionKey, Position
from headrace.ports.failures import Failure, Resumed
from headrace.ports.work import FailureState
from headrace.testing import protocol
from headrace.testing.memory import AuditRow, CountersRow, FailureRow, MemoryStore, PartitionRow, ReadyRow

R = TypeVar("R")


class MemoryFailures:
    """Implements ``ports.failures.Failures``."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def list(
        self, names: Sequence[str] | None = None, states: Sequence[FailureState] | None = None
    ) -> AsyncIterator[Failure]:
        """Yield failures by subscription and position."""
        await self._store.round_trip()
        found = [self._shown(name, row) for name, row in self._rows(names) if states is None or row.state in states]
        for failure in sorted(found, key=lambda failure: (failure.subscription, failure.position)):
            yield failure

    async def show(self, address: Address) -> Failure:
        """Return the failure of one key."""
        await self._store.round_trip()
        return self._shown(address.name, self._row(address))

    async def resume(self, names: Sequence[str] | None, key: str | None, who: str, why: str) -> Resumed:
        """Make failing keys due now."""
        return await self._do(lambda: self._resume(names, key, who, why))

    async def skip(self, address: Address, position: Position | None, who: str, why: str) -> Position:
        """Drop the failing event of one key."""
        return await self._do(lambda: self._skip(address, position, who, why))

    async def _do(self, statement: Callable[[], R]) -> R:
        await self._store.round_trip()
        with self._store.journal.atomic():
            return statement()

    def _rows(self, names: Sequence[str] | None) -> Iterator[tuple[str, FailureRow]]:
        for row in list(self._store.failures.values()):
            subscription = self._store.subscription_of(row.run)
            if subscription is not None and (names is None or subscription.stored.name in names):
                yield subscription.stored.name, row

    def _row(self, address: Address) -> FailureRow:
        for _, row in self._rows([address.name]):
            if self._store.partitions[row.part].key == (address.key or ""):
                return row
        raise NotFound(f"{address} has no failure: see `headrace failures list`")

    def _shown(self, name: str, row: FailureRow) -> Failure:
        event = self._store.log.get(row.position)
        return Failure(
            subscription=name,
            key=self._store.partitions[row.part].key,
            position=row.position,
            event_type=None if event is None else event.type,
            stream=None if event is None else event.stream,
            state=row.state,
            attempts=row.attempts,
            failure_class=row.failure_class,
            error_type=row.error_type,
            error=row.error,
            first_failed_at=row.first_failed_at,
            failed_at=row.failed_at,
            next_retry_at=row.next_retry_at,
            waiting=self._store.ready[row.part].backlog,
        )

    def _resume(self, names: Sequence[str] | None, key: str | None, who: str, why: str) -> Resumed:
        resumed = leased = 0
        for name, row in self._rows(names):
            partition, ready = self._store.partitions[row.part], self._store.ready[row.part]
            if key is not None and partition.key != key:
                continue
            if ready.lease is not None:
                leased += 1
            elif ready.attempts > 0:
                # The record stays until the key succeeds, so that its next failure does not count as a new one.
                self._store.set_due(ready, self._store.now(), attempts=-1, takeovers=0)
                fresh = replace(row, state=FailureState.BACKING_OFF, next_retry_at=self._store.now())
                self._store.failures.put(row.part, fresh)
                self._note(who, "resume", name, partition.key, row.position, why)
                resumed += 1
        return Resumed(resumed, leased)

    def _skip(self, address: Address, position: Position | None, who: str, why: str) -> Position:
        row = self._row(address)
        ready, partition = self._store.ready[row.part], self._store.partitions[row.part]
        if ready.lease is not None:
            raise NotAllowed(f"{address} is being tried now: skip it when the try has ended")
        if position is not None and position != row.position:
            raise NotAllowed(f"{address} fails at position {row.position}, not at {position}")
        subscription = self._store.subscription_of(row.run)
        if subscription is not None and not subscription.stored.partitioned:
            drained = self._skip_in_log(partition, ready, row.position)
        else:
            drained = self._skip_entry(ready, row.position)
        self._store.failures.drop(row.part)
        self._store.count(row.run, 0, CountersRow(skipped=1, drained=drained))
        self._note(who, "skip", address.name, partition.key, row.position, why)
        return row.position

    def _skip_entry(self, ready: ReadyRow, position: Position) -> int:
        """Take one event out of a key's inbox and make the rest due; returns 1 when there is no rest."""
        entries = self._store.inbox.get(ready.part, ())
        if position not in entries:
            raise HeadraceError(f"the inbox of partition {ready.part} has no entry for its failing position {position}")
        rest = tuple(entry for entry in entries if entry != position)
        protocol.put_entries(self._store, ready.part, rest)
        if not rest:
            self._store.ready.drop(ready.part)
            return 1
        self._store.set_due(
            ready, self._store.now(), attempts=0, takeovers=0, backlog=ready.backlog - 1, first_pos=rest[0]
        )
        return 0

    def _skip_in_log(self, partition: PartitionRow, ready: ReadyRow, position: Position) -> int:
        """Move an unpartitioned subscription onto the failing event."""
        if partition.position >= position:
            raise HeadraceError(f"partition {ready.part} is beyond its failing position {position}")
        moved = replace(partition, position=position, touched_at=self._store.now())
        self._store.partitions.put(partition.id, moved)
        self._store.set_due(ready, self._store.now(), attempts=0, takeovers=0, first_pos=position)
        return 0

    def _note(self, who: str, verb: str, subscription: str, key: PartitionKey, position: Position, why: str) -> None:
        self._store.audit.append(AuditRow(self._store.now(), who, verb, subscription, key, position, why))
