"""Connections: a pool, sessions on it, and one place where statements are counted.

A session is one connection for the time of a block. No statement may rely on what an earlier block
left in its session, so everything also runs through PgBouncer in transaction mode. A connection that
broke, or that was left in a transaction, never goes back to the pool.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, Self, cast

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from asyncpg.transaction import Transaction

from headrace.domain.errors import HandlerTimeout, Unavailable
from headrace.store.errors import IDLE_TOO_LONG, translated
from headrace.store.queries import DEFAULT_SCHEMA, Queries
from headrace.store.reaching import checked_dsn, reaching

OnStatement = Callable[[str], None]
"""Hears of every executed command other than BEGIN, COMMIT and ROLLBACK; gets its text."""

CONNECT_SECONDS = 10.0
ABANDON_SECONDS = 2.0


async def _keep(connection: asyncpg.Connection) -> None:
    """Leave the session as it is: nothing relies on it, and RESET would cost a round trip each time."""


def _learner(queries: Queries) -> Callable[[asyncpg.Connection], Awaitable[None]]:
    async def learn(connection: asyncpg.Connection) -> None:
        async with connection.transaction():
            await connection.fetchrow(queries.array_types)

    return learn


def _is_closed(connection: asyncpg.Connection) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True  # the pool took the broken connection away while the block still had it


@dataclass(slots=True)
class _IdleWatch:
    """How long a session has been idle, and how long the server lets it be; in seconds."""

    limit: float | None = None
    since: float = 0.0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Run one statement; a connection that was lost after too long a pause leaves as HandlerTimeout."""
        idle = asyncio.get_running_loop().time() - self.since if self.since else 0.0
        try:
            yield
        except Unavailable as error:
            # The server's clock for the pause starts a little before ours.
            if self.limit is not None and idle >= self.limit * 0.9:
                raise HandlerTimeout(IDLE_TOO_LONG) from error
            raise
        finally:
            self.since = asyncio.get_running_loop().time()


class Session:
    """One connection, with asyncpg's calls and our errors.

    Arguments and results are asyncpg's; ``json`` and ``jsonb`` travel as text. Each call raises what
    :func:`headrace.store.errors.translated` says.
    """

    def __init__(
        self,
        connection: asyncpg.Connection,
        database: "Database",
        timeout: float | None = None,
        *,
        own: bool = True,
        idle: "_IdleWatch | None" = None,
    ) -> None:
        self._connection = connection
        self._database = database
        self._own = own
        self._timeout = timeout
        self._idle = idle or _IdleWatch()

    @property
    def queries(self) -> Queries:
        """The named queries for the schema of this database."""
        return self._database.queries

    @property
    def connection(self) -> asyncpg.Connection:
        """The driver's connection, for code of this room that needs more than the calls below."""
        return self._connection

    def for_user(self) -> "Session":
        """Return the same connection for statements that are not ours: a missing table stays the user's error."""
        return Session(self._connection, self._database, self._timeout, own=False, idle=self._idle)

    def expect_idle(self, seconds: float | None) -> None:
        """Say which idle_in_transaction_session_timeout was set for this transaction; None for none.

        The driver drops what the server says when it ends an idle session, so a lost connection is
        told apart by how long it was idle: HandlerTimeout from that limit on, Unavailable below.
        """
        self._idle.limit = seconds

    def count(self, text: str) -> None:
        """Report one statement to the observer; for callers that reach for the driver themselves."""
        if self._database.on_statement is not None:
            self._database.on_statement(text)

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """Run one statement (without arguments: a script) and return its command tag."""
        # A script is one message, which a pooler cannot tear apart: what no transaction may hold goes, too.
        async with self._statement(query, whole=not args):
            return await self._connection.execute(query, *args, timeout=timeout or self._timeout)

    async def executemany(self, query: str, args: Iterable[Sequence[Any]], timeout: float | None = None) -> None:
        """Run one statement for each row of arguments, pipelined, all or nothing; counts once."""
        async with self._statement(query):
            await self._connection.executemany(query, args, timeout=timeout or self._timeout)

    async def fetch(
        self, query: str, *args: Any, timeout: float | None = None, record_class: type[Any] | None = None
    ) -> list[asyncpg.Record]:
        """Run one statement and return its rows, of the driver's class for records or one made from it."""
        async with self._statement(query):
            rows: list[asyncpg.Record] = await self._connection.fetch(
                query, *args, timeout=timeout or self._timeout, record_class=record_class
            )
            return rows

    async def fetchrow(
        self, query: str, *args: Any, timeout: float | None = None, record_class: type[Any] | None = None
    ) -> asyncpg.Record | None:
        """Run one statement and return its first row, of the driver's class for records or one made from it."""
        async with self._statement(query):
            return await self._connection.fetchrow(
                query, *args, timeout=timeout or self._timeout, record_class=record_class
            )

    async def fetchval(self, query: str, *args: Any, column: int = 0, timeout: float | None = None) -> Any:
        """Run one statement and return one value of its first row, or None."""
        async with self._statement(query):
            return await self._connection.fetchval(query, *args, column=column, timeout=timeout or self._timeout)

    @asynccontextmanager
    async def transaction(self, *, snapshot: bool = False) -> AsyncIterator[None]:
        """Run a block as one READ COMMITTED transaction, or as a savepoint inside one.

        ``snapshot``: REPEATABLE READ instead, so that all its statements see the same rows; for reading only.
        """
        nested = self._in_transaction()
        with self._idle.watched(), translated(self._own):
            level: Literal["read_committed", "repeatable_read"] = "repeatable_read" if snapshot else "read_committed"
            transaction = self._connection.transaction(isolation=None if nested else level)
            await transaction.start()
        try:
            yield
        except BaseException:
            await self._undo(transaction)
            raise
        with self._idle.watched(), translated(self._own):
            await transaction.commit()

    async def _undo(self, transaction: Transaction) -> None:
        """Roll back; the error that led here matters, not one of the rollback.

        What cannot be rolled back (the session is gone, or busy with a statement that nobody waits for) must not be
        used again either: the connection is cut, and the server rolls back.
        """
        if _is_closed(self._connection):
            return
        try:
            await transaction.rollback()
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
            if not _is_closed(self._connection):
                self._connection.terminate()

    @asynccontextmanager
    async def _statement(self, text: str, *, whole: bool = False) -> AsyncIterator[None]:
        self.count(text)
        if self._database.pooler and not whole and not self._in_transaction():
            # Behind a pooler parse and execute must reach the same server session: only a transaction holds it.
            async with self.transaction():
                with translated(self._own):
                    yield
            return
        with self._idle.watched(), translated(self._own):
            yield

    def _in_transaction(self) -> bool:
        with self._idle.watched(), translated(self._own):
            return self._connection.is_in_transaction()


class Database:
    """A pool of connections to one database, and the queries for one schema of it.

    ``pooler=True`` is for PgBouncer in transaction mode: no prepared statement outlives its
    transaction. ``on_statement`` hears every executed command. Attributes may be read freely.
    """

    def __init__(self, pool: asyncpg.Pool, schema: str, pooler: bool, on_statement: OnStatement | None) -> None:
        self._pool = pool
        self.schema = schema
        self.pooler = pooler
        self.on_statement = on_statement
        self.queries = Queries(schema)

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        min_size: int = 1,
        max_size: int = 10,
        application_name: str = "headrace",
        pooler: bool = False,
        on_statement: OnStatement | None = None,
    ) -> Self:
        """Open a pool; ``min_size`` connections are made at once, so a wrong DSN shows here.

        Raises:
            UsageError: the DSN is wrong, or the server refuses the user or has no such database.
            Unavailable: the server cannot be reached.

        """
        arguments: dict[str, Any] = {"statement_cache_size": 0, "init": _learner(Queries(schema))} if pooler else {}
        with reaching():
            # The driver would restore a floor of connections by a task of its own, which logs while the server is
            # down: no floor, and the first connections by hand.
            pool = await asyncpg.create_pool(
                checked_dsn(dsn),
                min_size=0,
                max_size=max(max_size, min_size, 1),
                timeout=CONNECT_SECONDS,
                server_settings={"application_name": application_name},
                reset=_keep,
                **arguments,
            )
        database = cls(pool, schema, pooler, on_statement)
        try:
            async with AsyncExitStack() as warm:
                for _ in range(min_size):
                    await warm.enter_async_context(database.session())
        except BaseException:
            pool.terminate()
            raise
        return database

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, timeout: float = 5.0) -> None:
        """Close all connections; those still busy after ``timeout`` seconds are cut."""
        try:
            async with asyncio.timeout(timeout):
                await self._pool.close()
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self._pool.terminate()

    @asynccontextmanager
    async def session(self, timeout: float | None = None) -> AsyncIterator[Session]:
        """Lend one connection; ``timeout`` (seconds) bounds each statement, not the block.

        Raises:
            Unavailable: no connection can be made.

        """
        with reaching():
            connection = await self._pool.acquire(timeout=CONNECT_SECONDS * 3)
        inner = cast("asyncpg.Connection", connection)
        try:
            yield Session(inner, self, timeout)
        except asyncio.CancelledError:
            await self._abandon(inner)
            raise
        finally:
            await self._give_back(inner)

    async def _abandon(self, connection: asyncpg.Connection) -> None:
        """Close a connection whose statement was cancelled: whether a transaction is open, the driver cannot tell yet.

        First it is waited for that the server has heard of the cancelling; otherwise the driver complains in the log.
        """
        gone = (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
        try:
            with suppress(*gone):
                async with asyncio.timeout(ABANDON_SECONDS):
                    await connection.execute(self.queries.rollback)
        finally:
            # Also when this is cancelled in its turn.
            if not _is_closed(connection):
                connection.terminate()

    async def _give_back(self, connection: asyncpg.Connection) -> None:
        try:
            if not _is_closed(connection) and connection.is_in_transaction():
                connection.terminate()
            await self._pool.release(cast("PoolConnectionProxy", connection))
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            # The pool has dropped it already; what the block did or raised is what counts.
            return

    async def expire(self) -> None:
        """Let every connection be replaced before its next use: after a restart the old ones are dead."""
        await self._pool.expire_connections()
