"""The ledger of failing keys on PostgreSQL.

Every change locks ready rows first, in their one order, and decides from what it reads afterwards.
What a worker is trying at the moment is never changed: it is reported.
"""

from collections.abc import AsyncIterator, Sequence
from itertools import count

import asyncpg

from headrace.domain.errors import HeadraceError, NotAllowed, NotFound
from headrace.domain.ids import Address, PartitionId, PartitionKey, Position
from headrace.ports.failures import Failure, Resumed
from headrace.ports.work import FailureState
from headrace.store.mapping import EventTable
from headrace.store.pool import Database, Session
from headrace.store.sources import table_of, tables_of

PAGE_ROWS = 500
RESUME_ROWS = 1000
"""So many keys are resumed in one transaction: a longer one would keep their flushes waiting."""

WHOLE_LOG = PartitionKey("")

_AT_ODDS = "the tables were written by hand, or this is a mistake of ours; nothing was changed, please report it"


class PostgresFailures:
    """Implements ``ports.failures.Failures``; events are looked up in the subscription's own table."""

    def __init__(self, database: Database, table: EventTable) -> None:
        self._database = database
        self._queries = database.queries
        self._table = table

    async def list(
        self, names: Sequence[str] | None = None, states: Sequence[FailureState] | None = None
    ) -> AsyncIterator[Failure]:
        """Yield failures by subscription and position, page by page; see the port."""
        wanted = None if states is None else [state.value for state in states]
        async with self._database.session() as session:
            runs = await session.fetch(self._queries.failing_runs, _array(names))
            tables = await tables_of(session, self._table, [run["name"] for run in runs])
        for run in runs:
            page = self._queries.render("failures_page", events=tables.get(run["name"], self._table).events)
            position = 0
            while True:
                # No connection is held while the caller looks at a page.
                async with self._database.session() as session:
                    rows = await session.fetch(page, run["run"], position, wanted, PAGE_ROWS)
                for row in rows:
                    yield _failure(run["name"], row)
                if len(rows) < PAGE_ROWS:
                    break
                position = rows[-1]["position"]

    async def show(self, address: Address) -> Failure:
        """Return the failure of one key; see the port."""
        async with self._database.session() as session:
            return _failure(address.name, await self._find(session, address))

    async def resume(self, names: Sequence[str] | None, key: str | None, who: str, why: str) -> Resumed:
        """Make failing keys due now with a fresh budget; see the port.

        A key that was resumed and not tried since stays as it is and is not counted again.
        """
        resumed = leased = 0
        async with self._database.session() as session:
            for run in await session.fetch(self._queries.failing_runs, _array(names)):
                after = PartitionId(0)
                for _ in count():
                    parts = await self._resume_some(session, run, after, key, who, why)
                    resumed += len(parts.resumed)
                    leased += parts.leased
                    if parts.last is None:
                        break
                    after = parts.last
        return Resumed(resumed, leased)

    async def skip(self, address: Address, position: Position | None, who: str, why: str) -> Position:
        """Drop the failing event of one key and make the key due; see the port."""
        async with self._database.session() as session, session.transaction():
            found = await self._find(session, address)
            part = found["part"]
            locked = await session.fetchrow(self._queries.failing_lock, [part])
            failing = await session.fetchval(self._queries.failing_position, part)
            if locked is None or failing is None:
                raise _no_failure(address)
            if locked["lease"] is not None:
                raise NotAllowed(f"{address} is being tried now: skip it when the try has ended")
            if position is not None and position != failing:
                raise NotAllowed(
                    f"{address} fails at position {failing}, not at {position}: see `headrace failures show`"
                )
            skip = self._skip_entry if found["partitioned"] else self._skip_in_log
            drained = await skip(session, part, failing)
            await session.execute(self._queries.skip_record, part, drained, who, address.name, why)
            return Position(failing)

    async def _find(self, session: Session, address: Address) -> asyncpg.Record:
        table = await table_of(session, self._table, address.name)
        query = self._queries.render("failure_of_key", events=table.events)
        row = await session.fetchrow(query, address.name, address.key if address.key is not None else WHOLE_LOG)
        if row is None:
            raise _no_failure(address)
        return row

    async def _resume_some(
        self, session: Session, run: asyncpg.Record, after: PartitionId, key: str | None, who: str, why: str
    ) -> "_Some":
        async with session.transaction():
            rows = await session.fetch(self._queries.failing_parts, run["run"], after, key, RESUME_ROWS)
            parts = [row["part"] for row in rows]
            if not parts:
                return _Some([], 0, None)
            locked = await session.fetch(self._queries.failing_lock, parts)
            free = [row["part"] for row in locked if row["lease"] is None and row["attempts"] > 0]
            if free:
                await session.execute(self._queries.resume_ready, free)
                await session.execute(self._queries.resume_failures, free, who, run["name"], why)
        leased = sum(row["lease"] is not None for row in locked)
        return _Some(free, leased, parts[-1] if len(parts) == RESUME_ROWS else None)

    async def _skip_entry(self, session: Session, part: int, position: int) -> int:
        """Take the event out of the inbox; returns 1 when nothing is left of the key."""
        if await session.fetchval(self._queries.skip_entry, part, position) is None:
            raise HeadraceError(
                f"the inbox of partition {part} has no entry for its failing position {position}: {_AT_ODDS}"
            )
        if await session.fetchval(self._queries.skip_last, part) is not None:
            return 1
        await session.execute(self._queries.skip_lower, part)
        return 0

    async def _skip_in_log(self, session: Session, part: int, position: int) -> int:
        if await session.fetchval(self._queries.skip_in_log, part, position) is None:
            raise HeadraceError(f"partition {part} is beyond its failing position {position}: {_AT_ODDS}")
        await session.execute(self._queries.skip_log_ready, part, position)
        return 0


class _Some:
    """What one transaction of a resume did; ``last`` is where the next one goes on."""

    __slots__ = ("last", "leased", "resumed")

    def __init__(self, resumed: Sequence[int], leased: int, last: PartitionId | None) -> None:
        self.resumed = resumed
        self.leased = leased
        self.last = last


def _array(names: Sequence[str] | None) -> "list[str] | None":
    return None if names is None else [*names]


def _no_failure(address: Address) -> NotFound:
    return NotFound(f"{address} has no failure: see `headrace failures list`")


def _failure(name: str, row: asyncpg.Record) -> Failure:
    forever = row["next_retry_at"] is None
    return Failure(
        subscription=name,
        key=PartitionKey(row["key"]),
        position=Position(row["position"]),
        event_type=row["type"],
        stream=row["stream"],
        state=FailureState(row["state"]),
        attempts=row["attempts"],
        failure_class=row["class"],
        error_type=row["error_type"],
        error=row["error"],
        first_failed_at=row["first_failed_at"],
        failed_at=row["failed_at"],
        next_retry_at=None if forever else row["next_retry_at"],
        waiting=row["waiting"],
    )
