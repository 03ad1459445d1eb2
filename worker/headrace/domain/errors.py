"""The error tree, by what to do next.

::

    HeadraceError
    ├── UsageError            the caller's words, code or set-up are wrong: fix and call again
    │   ├── BadName
    │   ├── BadDeclaration    a subscriber class cannot be used as written
    │   ├── BadInput          a line of an import, a value of an option
    │   │   └── UnstorableEvent  an event of a batch that the table cannot keep
    │   ├── NotFound          no subscription, partition or failure of that name
    │   ├── NotAllowed        a transition or verb that the present status refuses
    │   ├── OwnedElsewhere    the subscription belongs to another app of this database
    │   ├── SchemaMissing     run `headrace migrate`
    │   ├── SchemaTooNew      the code is older than the schema
    │   ├── MissingRight      the database role lacks a grant
    │   └── NotExact          the event table cannot be read exactly
    ├── Unavailable           the database cannot be reached now: retry later
    │   └── DatabaseFull      it answers, and has no room left to write
    ├── Conflict              an append lost against another one: read again and decide anew
    ├── TransactionAborted    serialization failure or deadlock: do the same again
    ├── LeaseLost             somebody else owns these keys now: drop everything of this lease
    ├── HandlerTimeout        a handler took longer than its declared time-out
    ├── KeyNotMade            no partition key could be made for an event
    ├── NotFinished           a limit or time-out was reached with work left
    ├── Unrecoverable         raised by handlers: park this key at once
    └── Busy                  raised by handlers: slow this key down, no failure

Driver errors are translated in ``store`` and keep their cause.
"""

from datetime import timedelta


class HeadraceError(Exception):
    """Root of everything that this package raises on purpose."""


class UsageError(HeadraceError):
    """The caller's words, code or set-up are wrong; the message names the fix."""


class BadName(UsageError):
    """A name or address that cannot be used."""


class BadDeclaration(UsageError):
    """A subscriber class that cannot be used as written."""


class BadInput(UsageError):
    """A value from outside (a line, an option) that cannot be used."""


class UnstorableEvent(BadInput):
    """An event of a batch that the event table cannot keep; ``index`` is its place in the batch, from 0."""

    def __init__(self, index: int, stream: str, type: str, problem: str) -> None:
        """Name the event and the problem, which opens with the part of the event that has it."""
        super().__init__(f"event {index + 1} of this batch (stream {stream!r}, type {type!r}): {problem}")
        self.index = index
        self.problem = problem


class NotFound(UsageError):
    """Nothing of that name."""


class NotAllowed(UsageError):
    """The present status refuses this."""


class OwnedElsewhere(UsageError):
    """The subscription belongs to another app of this database."""


class SchemaMissing(UsageError):
    """The database has no, or an older, headrace schema."""


class SchemaTooNew(UsageError):
    """The schema is newer than this code."""


class MissingRight(UsageError):
    """The database role lacks a grant."""


class NotExact(UsageError):
    """The event table cannot be read without the risk of missing events."""


class Unavailable(HeadraceError):
    """The database cannot be reached, or is starting up or going down."""


class DatabaseFull(Unavailable):
    """The database has no room left on its disk; nothing was stored."""


class Conflict(HeadraceError):
    """An append did not meet its expected version or its condition; nothing was stored."""


class TransactionAborted(HeadraceError):
    """The database gave up the transaction for no fault of its content; do it again."""


class LeaseLost(HeadraceError):
    """The fence refused: the lease row is gone, so every key of the group belongs to others."""


class HandlerTimeout(HeadraceError):
    """A handler took longer than its time-out; declare a longer one with ``timeout=``."""


class KeyNotMade(HeadraceError):
    """No partition key could be made for an event."""


class NotFinished(HeadraceError):
    """A limit or time-out was reached with work left."""


class Unrecoverable(HeadraceError):
    """Raise it in a handler to park the key at once: trying again cannot help."""


class Busy(HeadraceError):
    """Raise it in a handler to have the same event again later, without counting a failure."""

    def __init__(self, retry_after: float | timedelta = 1.0, message: str = "busy") -> None:
        """Take the pause in seconds (or as a timedelta) before the next try."""
        super().__init__(message)
        self.retry_after = retry_after if isinstance(retry_after, timedelta) else timedelta(seconds=retry_after)
