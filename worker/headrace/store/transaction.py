"""One fenced transaction of a claim group, and the connection that handlers write through.

Handlers' writes, flush and failures commit together or not at all. The connection shows handlers the
driver's own errors, except those that say that the session or the transaction is gone. It never lets
a handler end the transaction that also moves its positions.
"""

from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any

from headrace.domain.errors import HandlerTimeout, HeadraceError, NotAllowed, TransactionAborted, Unavailable
from headrace.domain.handler_statements import require_harmless
from headrace.domain.ids import LeaseId, PartitionId
from headrace.domain.unawaited import Calls
from headrace.ports.clock import Identity
from headrace.ports.work import Flush, Flushed, KeyFailure
from headrace.store import flushing
from headrace.store.pool import Session


class HandlerConnection:
    """Implements ``ports.connection.Connection`` on the session of one transaction."""

    def __init__(self, session: Session, lease: LeaseId) -> None:
        self._session = session.for_user()
        self._lease = lease
        self._deferred: list[tuple[str, tuple[Any, ...]]] = []
        self._over: HeadraceError | None = None
        self._doubt: BaseException | None = None
        self._sent = 0
        self._calls = Calls()

    def execute(self, query: str, *args: Any, timeout: float | None = None) -> Coroutine[Any, Any, str]:
        """Run a statement, or several without arguments; see the port."""
        return self._calls.made("execute", query, self._execute(query, args, timeout))

    def executemany(
        self, command: str, args: Iterable[Sequence[Any]], *, timeout: float | None = None
    ) -> Coroutine[Any, Any, None]:
        """Run one statement for each sequence of arguments; see the port."""
        return self._calls.made("executemany", command, self._executemany(command, args, timeout))

    def fetch(
        self, query: str, *args: Any, timeout: float | None = None, record_class: type[Any] | None = None
    ) -> Coroutine[Any, Any, list[Any]]:
        """Run a query and return all its rows; see the port."""
        return self._calls.made("fetch", query, self._fetch(query, args, timeout, record_class))

    def fetchrow(
        self, query: str, *args: Any, timeout: float | None = None, record_class: type[Any] | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Run a query and return its first row; see the port."""
        return self._calls.made("fetchrow", query, self._fetchrow(query, args, timeout, record_class))

    def fetchval(
        self, query: str, *args: Any, column: int | str = 0, timeout: float | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Run a query and return one column of its first row; see the port."""
        return self._calls.made("fetchval", query, self._fetchval(query, args, column, timeout))

    async def _execute(self, query: str, args: tuple[Any, ...], timeout: float | None) -> str:
        await self._before(query)
        async with self._noting_loss():
            tag = await self._session.execute(query, *args, timeout=timeout)
            if not args and ";" in query.rstrip("; \t\r\n"):
                await self._require_fence()
            return tag

    async def _executemany(self, command: str, args: Iterable[Sequence[Any]], timeout: float | None) -> None:
        await self._before(command)
        async with self._noting_loss():
            await self._session.executemany(command, args, timeout=timeout)

    async def _fetch(
        self, query: str, args: tuple[Any, ...], timeout: float | None, record_class: type[Any] | None
    ) -> list[Any]:
        await self._before(query)
        async with self._noting_loss():
            return await self._session.fetch(query, *args, timeout=timeout, record_class=record_class)

    async def _fetchrow(
        self, query: str, args: tuple[Any, ...], timeout: float | None, record_class: type[Any] | None
    ) -> Any:
        await self._before(query)
        async with self._noting_loss():
            return await self._session.fetchrow(query, *args, timeout=timeout, record_class=record_class)

    async def _fetchval(self, query: str, args: tuple[Any, ...], column: int | str, timeout: float | None) -> Any:
        row = await self._fetchrow(query, args, timeout, None)
        return None if row is None else row[column]

    def defer(self, query: str, *args: Any) -> None:
        """Queue a statement; see the port."""
        self._check(query)
        self._deferred.append((query, args))

    def drop_unsent(self) -> None:
        """Forget what was deferred and not sent, and what was called and not awaited."""
        self._deferred.clear()
        self._calls.forget()

    def require_awaited(self) -> None:
        """Raise NotAllowed when a call was not awaited; to be asked at the end of a handler, never within it."""
        self._calls.require_awaited()

    def close(self) -> None:
        """Refuse everything from now on: the transaction has ended."""
        self._calls.forget()
        self._over = self._over or NotAllowed(
            "this connection belongs to a transaction that has ended: use it only while the handler runs"
        )

    async def settle(self) -> None:
        """Send what was deferred, in order; neighbours of the same text go as one pipelined statement."""
        waiting, self._deferred = self._deferred, []
        if not waiting:
            return
        self.require_open()
        async with self._noting_loss():
            for query, run in groupby(waiting, key=lambda item: item[0]):
                rows = [args for _, args in run]
                if len(rows) > 1 and rows[0]:
                    await self._session.executemany(query, rows)
                else:
                    for args in rows:
                        await self._session.execute(query, *args)
                    if not rows[0] and ";" in query.rstrip("; \t\r\n"):
                        await self._require_fence()

    def require_open(self) -> None:
        """Raise what ended this connection, if anything has."""
        if self._over is not None:
            raise self._over

    async def _before(self, query: str) -> None:
        self._check(query)
        await self.settle()

    def _check(self, query: str) -> None:
        self.require_open()
        require_harmless(query)

    async def _require_fence(self) -> None:
        if not await self._session.fetchval(self._session.queries.fence_stands, str(self._lease)):
            self._over = NotAllowed(
                "a script of this handler has ended the transaction that also moves its position: leave out BEGIN, "
                "COMMIT and ROLLBACK; what it committed stays, and the event will be handled again"
            )
            raise self._over

    @asynccontextmanager
    async def _noting_loss(self) -> AsyncIterator[None]:
        """Keep the error that ended the session: what is called afterwards raises the same."""
        self._sent += 1
        try:
            yield
        except BaseException as error:
            self._doubt = error
            if isinstance(error, HandlerTimeout | Unavailable):
                self._over = self._over or error
            raise
        finally:
            self._sent -= 1
        self._doubt = None

    @property
    def is_busy(self) -> bool:
        """Whether a statement is on its way still."""
        return self._sent > 0

    async def require_unspoiled(self) -> None:
        """Return when the transaction can commit; a COMMIT after an error would quietly be a ROLLBACK.

        Raises:
            TransactionAborted: a statement has failed, and whoever sent it has swallowed the error.

        """
        if self._doubt is not None:
            await self._require_fence()
            self._doubt = None

    async def require_not_swallowed(self) -> None:
        """Return when the handler that has just ended has left the transaction usable.

        Raises:
            NotAllowed: it has swallowed the error of a statement of its own.
            TransactionAborted: the same, of an error for which the statement was not to blame.

        """
        swallowed = self._doubt
        try:
            await self.require_unspoiled()
        except TransactionAborted:
            if swallowed is None or isinstance(swallowed, TransactionAborted):
                raise
            raise NotAllowed(
                "a statement of this handler has failed, and the handler has gone on as if it had not "
                f"({type(swallowed).__name__}: {swallowed}): let the error pass, or put the statement between "
                "SAVEPOINT and ROLLBACK TO SAVEPOINT"
            ) from swallowed


class PostgresTransaction:
    """Implements ``ports.work.WorkTransaction``."""

    def __init__(self, session: Session, lease: LeaseId, owner: Identity) -> None:
        self._session = session
        self._lease = lease
        self._owner = owner
        self._connection = HandlerConnection(session, lease)

    @property
    def connection(self) -> HandlerConnection:
        """What handlers write through."""
        return self._connection

    async def settle(self) -> None:
        """Send what handlers have deferred so far, if they awaited the rest; raises the driver's error for it."""
        self._connection.require_open()
        self._connection.require_awaited()
        await self._connection.settle()

    async def finish(self) -> None:
        """Settle, and make sure that the commit which follows is one."""
        await self.settle()
        await self._connection.require_unspoiled()

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """Run a block that can be undone alone; see the port. What it defers is sent before it ends."""
        await self.settle()
        async with self._session.transaction():
            try:
                yield
                await self.settle()
                await self._connection.require_not_swallowed()
            except BaseException:
                self._connection.drop_unsent()
                raise

    async def flush(self, flush: Flush) -> Flushed:
        """Settle, then flush; see the port."""
        await self.settle()
        return await flushing.flush(self._session, self._owner, flush, fence=False)

    async def fail(self, failure: KeyFailure) -> int:
        """Settle, then record a failure; see the port."""
        await self.settle()
        return await flushing.fail(self._session, self._owner, failure)

    async def slow(self, part: PartitionId, delay: float) -> None:
        """Settle, then free a key for ``delay`` seconds; see the port."""
        await self.settle()
        await flushing.slow(self._session, self._owner, self._lease, part, delay)
