"""The catalog in memory: subscriptions' own rows and the moves between statuses."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from headrace.domain.errors import BadDeclaration, NotFound, OwnedElsewhere
from headrace.domain.ids import START, LeaseId, PartitionKey, Position, Run
from headrace.domain.subscription import Declaration, ErrorClass, Status, Subscription
from headrace.ports.catalog import Caught
from headrace.ports.clock import Identity
from headrace.ports.work import ClaimRequest, FailureState
from headrace.testing import protocol
from headrace.testing.memory import LIVE_BEATS, CursorRow, MemoryStore, ReadyRow, SubscriptionRow
from headrace.testing.protocol import Owner

R = TypeVar("R")

WHOLE_LOG = PartitionKey("")
"""The key of the one partition of an unpartitioned subscription."""

_STOPPABLE = frozenset({Status.NEW, Status.BOOTING, Status.ACTIVE, Status.ERROR})


class MemoryCatalog:
    """Implements ``ports.catalog.Catalog``."""

    def __init__(self, store: MemoryStore, identity: Identity) -> None:
        self._store = store
        self._owner = Owner(identity.id, identity.name)
        self._setups: dict[Run, LeaseId] = {}

    async def declare(self, declarations: Sequence[Declaration]) -> list[Subscription]:
        """Insert what is missing, bring declared facts up to date."""
        return await self._do(lambda: [self._declare(declared) for declared in declarations])

    async def find(self, names: Sequence[str] | None = None) -> list[Subscription]:
        """Return subscriptions by name."""
        await self._store.round_trip()
        found = (row.stored for row in self._store.subscriptions.values() if names is None or row.stored.name in names)
        return sorted(found, key=lambda stored: stored.name)

    async def start(self, subscription: Subscription, position: Position, boot_target: Position) -> Subscription:
        """End set-up."""
        return await self._do(lambda: self._start(subscription, position, boot_target))

    async def activate(self, run: Run) -> bool:
        """Move booting to active when its history is handled."""
        return await self._do(lambda: self._activate(run))

    async def stop_main(self, run: Run, error_class: ErrorClass, reason: str, retry_in: float) -> None:
        """Put a main into error."""
        await self._do(lambda: self._stop_main(run, error_class, reason, retry_in))

    async def begin_retry(self, run: Run, error_class: ErrorClass, force: bool = False) -> bool:
        """Bring a main back from an error of that class."""
        return await self._do(lambda: self._begin_retry(run, error_class, force))

    @asynccontextmanager
    async def setup_lease(self, subscription: Subscription, lease: LeaseId, ttl: float) -> AsyncIterator[bool]:
        """Hold the one set-up lease."""
        if not await self._do(lambda: self._take_setup_lease(subscription.run, lease, ttl)):
            yield False
            return
        self._setups[subscription.run] = lease
        try:
            yield True
        finally:
            del self._setups[subscription.run]
            await self._do(lambda: protocol.release(self._store, self._owner, [lease]))

    async def caught_up(self, run: Run, line: Position, key: PartitionKey | None = None) -> Caught:
        """Tell how far a subscription is with respect to ``line``."""
        return await self._do(lambda: self._caught_up(run, line, key))

    async def _do(self, statement: Callable[[], R]) -> R:
        await self._store.round_trip()
        with self._store.journal.atomic():
            return statement()

    def _put(self, row: SubscriptionRow, stored: Subscription) -> None:
        self._store.subscriptions.put(stored.name, replace(row, stored=stored))

    def _declare(self, declared: Declaration) -> Subscription:
        row = self._store.subscriptions.get(declared.name)
        if row is None:
            stored = Subscription(
                name=declared.name,
                app=declared.app,
                kind=declared.kind,
                group=declared.group,
                partitioned=declared.partitioned,
                run=Run(self._store.next_of("runs")),
                status=Status.NEW,
                epoch=0,
                declared=declared.digest,
            )
            self._store.subscriptions.put(
                declared.name, SubscriptionRow(stored, declared, declarations=(declared.digest,))
            )
            return stored
        if row.stored.app != declared.app:
            raise OwnedElsewhere(f"subscription {declared.name!r} belongs to the app {row.stored.app!r}")
        if row.stored.partitioned != declared.partitioned:
            raise BadDeclaration(f"subscription {declared.name!r} cannot change between partitioned and unpartitioned")
        was, now = row.stored.declared, declared.digest
        seen = row.declarations
        if was != now and now in seen and seen.index(now) < seen.index(was) and self._is_declared(declared.name, was):
            return row.stored
        seen = seen if now in seen else (*seen, now)
        epoch = row.stored.epoch + (was != now)
        stored = replace(row.stored, kind=declared.kind, group=declared.group, declared=now, epoch=epoch)
        self._store.subscriptions.put(declared.name, replace(row, stored=stored, declared=declared, declarations=seen))
        return stored

    def _is_declared(self, name: str, digest: str) -> bool:
        """Tell whether a worker declares it: silent ones count, as long as this one cannot know better."""
        now = self._store.now()
        mine = self._store.workers.get(self._owner.id)
        knows = (
            mine is not None
            and mine.is_live(now)
            and now - mine.steady_since > LIVE_BEATS * timedelta(seconds=mine.beat.every)
        )
        return any(
            (name, digest) in zip(row.beat.subscriptions, row.beat.declared, strict=False)
            and (row.is_live(now) or not knows)
            for row in self._store.workers.values()
        )

    def _start(self, subscription: Subscription, position: Position, boot_target: Position) -> Subscription:
        run = subscription.run
        if run in self._setups:
            protocol.fence(self._store, self._owner, self._setups[run])
        row = self._store.subscription_of(run)
        if row is None:
            raise NotFound(f"subscription {subscription.name!r} is gone, or was reset meanwhile: look again")
        if row.stored.status is not Status.NEW:
            return row.stored
        self._store.cursors.put(run, CursorRow(position, boot_target))
        if not row.stored.partitioned:
            part = self._store.make_partition(run, WHOLE_LOG, position).id
            ready = ReadyRow(part, run, 0, position, self._store.now(), self._store.next_of("turn"))
            self._store.ready.put(part, ready)
        stored = row.stored.booted() if boot_target > position else row.stored.activated()
        self._put(row, stored)
        return stored

    def _activate(self, run: Run) -> bool:
        row, cursor = self._store.subscription_of(run), self._store.cursors.get(run)
        if row is None or cursor is None or row.stored.status is not Status.BOOTING:
            return False
        if not self._is_booted(row, cursor):
            return False
        self._put(row, row.stored.activated())
        return True

    def _is_booted(self, row: SubscriptionRow, cursor: CursorRow) -> bool:
        run = row.stored.run
        if any(lease.run == run for lease in self._store.leases.values()):
            return False
        ready = self._store.ready_of(run)
        if not row.stored.partitioned:
            return not self._store.is_behind(self._store.partitions[ready[0].part].position, cursor.boot_target)
        return not self._store.is_behind(cursor.position, cursor.boot_target) and not any(
            found.first_pos <= cursor.boot_target and not self._is_set_aside(found) for found in ready
        )

    def _is_set_aside(self, ready: ReadyRow) -> bool:
        failure = self._store.failures.get(ready.part)
        return ready.due_at is None or (failure is not None and failure.state is not FailureState.BACKING_OFF)

    def _stop_main(self, run: Run, error_class: ErrorClass, reason: str, retry_in: float) -> None:
        row = self._store.subscription_of(run)
        if row is not None and row.stored.status in _STOPPABLE:
            stopped = row.stored.stopped_by(error_class, reason.replace("\0", "\\0"))
            self._put(row, replace(stopped, retry_at=self._store.later(retry_in)))

    def _begin_retry(self, run: Run, error_class: ErrorClass, force: bool) -> bool:
        row = self._store.subscription_of(run)
        if row is None or row.stored.status is not Status.ERROR or row.stored.error_class is not error_class:
            return False
        if not force and row.stored.retry_at is not None and row.stored.retry_at > self._store.now():
            return False
        self._put(row, row.stored.recovered())
        return True

    def _take_setup_lease(self, run: Run, lease: LeaseId, ttl: float) -> bool:
        now = self._store.now()
        for found in list(self._store.leases.values()):
            if found.run == run and found.purpose == "setup" and found.expires_at < now:
                self._store.leases.drop(found.id)
        if any(found.run == run and found.purpose != "work" for found in self._store.leases.values()):
            return False
        request = ClaimRequest(run, lease, lanes=1, parts=0, events=0, floor=0, ttl=ttl)
        protocol.put_lease(self._store, self._owner, request, parts=0, purpose="setup")
        return True

    def _caught_up(self, run: Run, line: Position, key: PartitionKey | None) -> Caught:
        row, cursor = self._store.subscription_of(run), self._store.cursors.get(run)
        if row is None or cursor is None:
            return Caught(START, behind=False)
        is_log, now = not row.stored.partitioned, self._store.now()
        position = self._log_position(run) if is_log else cursor.position
        behind = self._store.is_behind(position, line)
        ready = [found for found in self._store.ready_of(run) if key is None or self._key_of(found) == key]
        waiting = [found for found in ready if found.lease is None]
        places = [(place, self._key_of(found)) for found in waiting for place in self._parked_at(found)]
        parked = min(places, default=None)
        if parked is not None and key is not None and (failure := self._store.failures.get(ready[0].part)) is not None:
            # Asked about one key, where it fails counts for more than where it was held.
            parked = (failure.position, parked[1])
        return Caught(
            position=position,
            behind=behind,
            low=None if is_log else min((found.first_pos for found in ready), default=None),
            # The one ready row of an unpartitioned run is there all day: it is work only when it may move.
            due=any(found.is_due(now) for found in waiting) and (not is_log or (behind and parked is None)),
            leased=len(waiting) < len(ready) if key is not None else self._is_worked_on(run),
            backing_off=any(not found.is_due(now) and not self._is_set_aside(found) for found in waiting),
            parked=None if parked is None else parked[0],
            parked_key=None if parked is None else parked[1],
        )

    def _parked_at(self, ready: ReadyRow) -> Iterator[Position]:
        """Yield where a key stands that is held and sleeps, and where it fails if it is parked or waits for one."""
        if self._store.partitions[ready.part].hold is not None and ready.due_at is None:
            yield ready.first_pos
        failure = self._store.failures.get(ready.part)
        if failure is not None and failure.state is not FailureState.BACKING_OFF:
            yield failure.position

    def _log_position(self, run: Run) -> Position:
        return self._store.partitions[self._store.keys[run, WHOLE_LOG]].position

    def _is_worked_on(self, run: Run) -> bool:
        return any(lease.run == run and lease.purpose == "work" for lease in self._store.leases.values())

    def _key_of(self, ready: ReadyRow) -> PartitionKey:
        return self._store.partitions[ready.part].key
