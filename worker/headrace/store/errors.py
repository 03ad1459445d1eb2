"""Driver errors become ours, by what to do next.

Everything that leaves ``store`` passes :func:`translated`. An error that says nothing about the
connection, the transaction, the schema or a right stays as it is: it may be the user's own.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from headrace.domain.errors import (
    Conflict,
    DatabaseFull,
    HandlerTimeout,
    HeadraceError,
    LeaseLost,
    MissingRight,
    NotExact,
    SchemaMissing,
    TransactionAborted,
    Unavailable,
    UsageError,
)

LEASE_LOST = "HR001"
CONFLICT = "HR01"
"""SQLSTATEs HR010 to HR019: an append did not meet its version or condition."""
NOT_EXACT = "HR02"
"""SQLSTATEs HR020 to HR029: the horizon cannot be taken here."""

IDLE_TOO_LONG = (
    "the database ended a transaction that was idle for too long: the handler took longer than its time-out "
    "between two statements; declare a longer one with timeout= (seconds)"
)

_UNDEFINED = {"42P01", "42883", "3F000", "42703"}
_GOING_DOWN = {"57P01", "57P02", "57P03", "57P05"}
_ABORTED = {"25P02", "25P04"}
_ABORTED_CLASSES = {"40"}
_NO_CONNECTION_CLASSES = {"08"}
_TOO_MANY = {"53300"}
_DISK_FULL = {"53100"}
_NO_SUCH_TARGET = {"3D000", "28000", "28P01"}
_IDLE_TIMEOUT = "25P03"
_NO_RIGHT = "42501"
_STRANGE_SESSION = {"26000", "42P05"}
"""A prepared statement of ours is not in the session, or one of somebody else's is."""


def translate(error: BaseException, own: bool = True) -> HeadraceError | None:
    """Return our error for a driver's, or None when it should pass unchanged.

    ``own`` tells that the statement was this package's: only then does a missing table or right
    speak of the headrace schema, rather than of what a handler's author wrote.
    """
    if isinstance(error, asyncpg.PostgresError):
        return _by_state(error, own)
    if isinstance(error, asyncpg.InterfaceError):
        return _interface(error)
    if isinstance(error, asyncpg.InternalClientError):
        # What the driver makes of a server that ends the session while a statement is on its way.
        broke = any(words in str(error) for words in ("cannot switch to", "cannot process message"))
        return Unavailable(f"the connection to the database broke: {error}") if broke else None
    if isinstance(error, ConnectionError):
        if "rejected SSL upgrade" in str(error):
            return UsageError(
                "the server offers no TLS, and sslmode in the DSN asks for it: switch it on there (ssl = on), "
                "or correct sslmode"
            )
        return Unavailable(f"the database cannot be reached: {error}")
    return None


def _by_state(error: asyncpg.PostgresError, own: bool) -> HeadraceError | None:
    state = error.sqlstate or ""
    if state == _IDLE_TIMEOUT:
        return HandlerTimeout(IDLE_TOO_LONG)
    if state in _DISK_FULL:
        return DatabaseFull(
            f"the database has no room left to write ({error.args[0]}): make room on its disk, and run it again; "
            "what was stored before stays"
        )
    if state in _GOING_DOWN | _TOO_MANY or state[:2] in _NO_CONNECTION_CLASSES:
        return Unavailable(f"the database cannot be used now: {error}")
    if state in _ABORTED or state[:2] in _ABORTED_CLASSES:
        return TransactionAborted(f"the database gave up the transaction: {error}")
    if state in _NO_SUCH_TARGET:
        return UsageError(f"the database refuses the connection: {error}; correct the DSN")
    return _of_own_statement(state, error) if own else None


def _of_own_statement(state: str, error: asyncpg.PostgresError) -> HeadraceError | None:
    if state == LEASE_LOST:
        return LeaseLost(str(error))
    if state.startswith(CONFLICT):
        return Conflict(str(error))
    if state.startswith(NOT_EXACT):
        return NotExact(str(error))
    return _of_surroundings(state, error)


def _of_surroundings(state: str, error: asyncpg.PostgresError) -> HeadraceError | None:
    if state in _STRANGE_SESSION:
        return UsageError(
            "this session is shared with others, as behind PgBouncer in transaction mode: set HEADRACE_POOLER=true "
            "(in code pooler=True)"
        )
    if state in _UNDEFINED:
        return SchemaMissing(f"{error}: run `headrace migrate` on this database as the owner of the schema")
    if state == _NO_RIGHT:
        return MissingRight(
            f"{error}: the role needs the rights of a worker; the owner of the schema gives it what "
            "`headrace migrate --grants ROLE` prints"
        )
    return None


def _interface(error: asyncpg.InterfaceError) -> HeadraceError | None:
    if isinstance(error, asyncpg.exceptions.ClientConfigurationError):
        return UsageError(f"the DSN cannot be used: {error}")
    text = str(error)
    if any(word in text for word in ("closed", "closing", "connection was", "released back")):
        return Unavailable(f"the connection to the database broke: {text}")
    return None


@contextmanager
def translated(own: bool = True) -> Iterator[None]:
    """Run a block; a driver error inside leaves it as ours, with the driver's as its cause.

    Raises:
        Unavailable: the database cannot be reached, starts, stops, or has no free connection; or (DatabaseFull) its
            disk is full.
        TransactionAborted: serialization failure, deadlock, or a transaction that failed before.
        HandlerTimeout: the server ended a transaction idle for longer than the lease or time-out.
        LeaseLost, Conflict, NotExact, SchemaMissing, MissingRight: only when ``own``.
        UsageError: the DSN is wrong, or the server refuses the user or has no such database.

    """
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, ConnectionError) as error:
        ours = translate(error, own)
        if ours is None:
            raise
        raise ours from error
