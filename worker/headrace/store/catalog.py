"""The catalog on PostgreSQL: who subscribes, who owns it, where it stands.

The domain decides which move is legal; this room locks the row, asks it, and stores what it says.
Nothing here ever looks at a partition, so each call costs the same with a million of them.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg

from headrace.domain.errors import BadDeclaration, LeaseLost, NotFound, OwnedElsewhere, Unavailable
from headrace.domain.ids import LeaseId, PartitionKey, Position, Run
from headrace.domain.subscription import Declaration, ErrorClass, Kind, Status, Subscription
from headrace.ports.catalog import Caught
from headrace.ports.clock import Identity
from headrace.store.batches import arrays
from headrace.store.guarded import guarded
from headrace.store.mapping import EventTable, save_source
from headrace.store.pool import Database, Session

STOPPABLE = {Status.NEW, Status.BOOTING, Status.ACTIVE, Status.ERROR}
"""A main in another status stands still already."""


class PostgresCatalog:
    """Implements ``ports.catalog.Catalog`` for one worker or command; subscriptions read one event table."""

    def __init__(self, database: Database, table: EventTable, identity: Identity) -> None:
        self._database = database
        self._queries = database.queries
        self._table = table
        self._identity = identity
        self._setups: dict[Run, LeaseId] = {}

    async def declare(self, declarations: Sequence[Declaration]) -> list[Subscription]:
        """Insert what is missing, bring declared facts up to date, return all in order; see the port."""
        async with self._database.session() as session, session.transaction():
            await save_source(session, self._table)
            # In one order everywhere, so that two workers of an app never wait for each other in a circle.
            for declared in sorted(declarations, key=lambda declared: declared.name):
                await session.execute(self._queries.subscription_insert, *self._facts(declared))
            stored = await self._find(session, [declared.name for declared in declarations])
            by_name = {subscription.name: subscription for subscription in stored}
            for declared in declarations:
                _check(declared, by_name[declared.name])
            for declared in sorted(declarations, key=lambda declared: declared.name):
                await session.execute(self._queries.subscription_refresh, *self._facts(declared), self._identity.id)
            stored = await self._find(session, list(by_name))
        by_name = {subscription.name: subscription for subscription in stored}
        return [by_name[declared.name] for declared in declarations]

    async def find(self, names: Sequence[str] | None = None) -> list[Subscription]:
        """Return the named subscriptions (all when None), by name."""
        async with self._database.session() as session:
            return await self._find(session, None if names is None else list(names))

    async def start(self, subscription: Subscription, position: Position, boot_target: Position) -> Subscription:
        """End set-up: cursor, the one partition of an unpartitioned run, and the status; see the port.

        Raises:
            LeaseLost: this catalog held the set-up lease, and somebody else took it over.
            NotFound: the subscription was removed or reset meanwhile.

        """
        run = subscription.run
        async with self._database.session() as session, session.transaction():
            if run in self._setups:
                await session.execute(self._queries.fence, self._setups[run], self._identity.id, None)
            locked = await self._lock(session, run)
            if locked is None:
                raise NotFound(f"subscription {subscription.name!r} is gone, or was reset meanwhile: look again")
            stored = _subscription(locked)
            if stored.status is not Status.NEW:
                return stored
            await session.execute(self._queries.cursor_insert, run, position, boot_target)
            if not stored.partitioned:
                await session.execute(self._queries.whole_log_insert, run, position)
            started = stored.booted() if boot_target > position else stored.activated()
            await self._save(session, started, None)
            return started

    async def activate(self, run: Run) -> bool:
        """Move booting to active when its history is handled or parked; tells if it did."""
        query = self._queries.render("activate", events=self._table.events)
        async with guarded(self._database) as session:
            return await session.fetchval(query, run) is not None

    async def stop_main(self, run: Run, error_class: ErrorClass, reason: str, retry_in: float) -> None:
        """Put a main into error, or count one more try; nothing happens to one that stands still for another reason."""
        async with self._database.session() as session, session.transaction():
            locked = await self._lock(session, run)
            if locked is None or Status(locked["status"]) not in STOPPABLE:
                return
            stopped = _subscription(locked).stopped_by(error_class, reason.replace("\x00", "\\0"))
            await self._save(session, stopped, timedelta(seconds=retry_in))

    async def begin_retry(self, run: Run, error_class: ErrorClass, force: bool = False) -> bool:
        """Bring a main of that error class back to where it came from when its retry is due; see the port."""
        async with self._database.session() as session, session.transaction():
            locked = await self._lock(session, run)
            if locked is None or locked["status"] != Status.ERROR or locked["error_class"] != error_class:
                return False
            if not force and not locked["retry_is_due"]:
                return False
            await self._save(session, _subscription(locked).recovered(), None)
            return True

    @asynccontextmanager
    async def setup_lease(self, subscription: Subscription, lease: LeaseId, ttl: float) -> AsyncIterator[bool]:
        """Hold the one set-up lease of a subscription; False when somebody else has it.

        It is renewed by its id like any other. While it is held, ``start`` is fenced by it.
        """
        run = subscription.run
        async with self._database.session() as session, session.transaction():
            await session.execute(self._queries.setup_lease_expired, run)
            taken = await session.fetchval(
                self._queries.setup_lease, lease, run, self._identity.id, self._identity.name, timedelta(seconds=ttl)
            )
        if taken is None:
            yield False
            return
        self._setups[run] = lease
        try:
            yield True
        finally:
            del self._setups[run]
            await self._give_back(lease)

    async def caught_up(self, run: Run, line: Position, key: PartitionKey | None = None) -> Caught:
        """Tell how far a subscription is with respect to a line; see the port.

        ``backing_off`` tells of keys that come by themselves; parked ones do not count, however short their delay.
        """
        name = "caught_up" if key is None else "caught_up_key"
        query = self._queries.render(name, events=self._table.events)
        async with guarded(self._database) as session:
            row = await session.fetchrow(query, run, line, *(() if key is None else (str(key),)))
        if row is None:
            return Caught(Position(0), behind=False)
        held_up = row["parked"] is not None
        # The one ready row of an unpartitioned run is there all day: it is work only when something lies above it.
        waits = bool(row["due"]) and (row["partitioned"] or (row["behind"] and not held_up))
        return Caught(
            position=Position(row["position"]),
            behind=row["behind"],
            low=None if row["low"] is None else Position(row["low"]),
            due=waits,
            leased=bool(row["leased"]),
            backing_off=bool(row["backing_off"]),
            parked=Position(row["parked"]) if held_up else None,
            parked_key=PartitionKey(row["parked_key"]) if held_up else None,
        )

    async def _find(self, session: Session, names: list[str] | None) -> list[Subscription]:
        return [_subscription(row) for row in await session.fetch(self._queries.subscriptions, names)]

    async def _lock(self, session: Session, run: Run) -> asyncpg.Record | None:
        return await session.fetchrow(self._queries.subscription_lock, run)

    async def _save(self, session: Session, subscription: Subscription, retry_in: timedelta | None) -> None:
        await session.execute(
            self._queries.subscription_save,
            subscription.run,
            subscription.status.value,
            subscription.epoch,
            subscription.prev_status,
            subscription.error_class,
            subscription.reason,
            subscription.tries,
            retry_in,
        )

    async def _give_back(self, lease: LeaseId) -> None:
        try:
            async with self._database.session() as session:
                await session.execute(self._queries.release, [lease], self._identity.id)
        except (Unavailable, LeaseLost):
            # Its expiry frees it; what happened inside the block is what counts.
            return

    def _facts(self, declared: Declaration) -> tuple[object, ...]:
        start = declared.start if isinstance(declared.start, str) else str(int(declared.start))
        idle = declared.remove_idle_after
        return (
            declared.name,
            declared.app,
            declared.group,
            declared.kind.value,
            declared.partitioned,
            declared.partitioner,
            *arrays(declared.wanted),
            str(start),
            self._table.source,
            None if idle is None else timedelta(seconds=idle),
            declared.digest,
        )


def _check(declared: Declaration, stored: Subscription) -> None:
    if stored.app != declared.app:
        raise OwnedElsewhere(
            f"subscription {declared.name!r} belongs to the app {stored.app!r} of this database, not to "
            f"{declared.app!r}: give it another name, or App(name={stored.app!r})"
        )
    if stored.partitioned != declared.partitioned:
        was, now = ("partitioned", "not") if stored.partitioned else ("not partitioned", "partitioned")
        raise BadDeclaration(
            f"subscription {declared.name!r} is stored as {was} and declared as {now}: its events are ordered another "
            "way, so declare it under a new name, or remove the stored one first"
        )


def _subscription(row: asyncpg.Record) -> Subscription:
    return Subscription(
        name=row["name"],
        app=row["app"],
        kind=Kind(row["kind"]),
        group=row["group_name"],
        partitioned=row["partitioned"],
        run=Run(row["run"]),
        status=Status(row["status"]),
        epoch=row["epoch"],
        prev_status=None if row["prev_status"] is None else Status(row["prev_status"]),
        error_class=None if row["error_class"] is None else ErrorClass(row["error_class"]),
        reason=row["reason"],
        retry_at=row["retry_at"],
        tries=row["tries"],
        declared=row["declared"],
    )
