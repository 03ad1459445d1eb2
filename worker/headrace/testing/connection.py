"""The connection of handlers under test: it keeps statements and knows no table.

What a handler writes can be asserted as text and arguments; what it reads is answered by a function
of the test's author. A read model that must really hold rows needs PostgreSQL, not this.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.domain.errors import NotAllowed, UsageError
from headrace.domain.handler_statements import require_harmless


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement as a handler sent it; ``executemany`` gives one for each sequence of arguments."""

    query: str
    args: tuple[Any, ...] = ()


Responder = Callable[[Statement], Any]
"""Answers a statement with its rows (mappings or sequences), or raises what the database would."""

CheckState = Callable[[], None]
NoteError = Callable[[], None]


class NoAnswer(UsageError):
    """A handler read something that no responder answers."""


class RecordedConnection:
    """Implements ``ports.connection.Connection`` by keeping what is sent, in ``sent``.

    Savepoints that a handler makes by statements of its own are kept like any other and undo nothing.
    """

    def __init__(
        self, respond: Responder | None, check_state: CheckState = lambda: None, note_error: NoteError = lambda: None
    ) -> None:
        self.sent: list[Statement] = []
        self.deferred: list[Statement] = []
        self._respond = respond
        self._check_state = check_state
        self._note_error = note_error
        self._is_closed = False

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """Keep one statement; the responder, if there is one, may raise for it."""
        self._check(query)
        self._send_all(Statement(query, args))
        return query.split(None, 1)[0].upper() if query.strip() else ""

    async def executemany(self, command: str, args: Iterable[Sequence[Any]], *, timeout: float | None = None) -> None:
        """Keep one statement for each sequence of arguments."""
        self._check(command)
        self._send_all(*(Statement(command, tuple(row)) for row in args))

    async def fetch(
        self, query: str, *args: Any, timeout: float | None = None, record_class: type[Any] | None = None
    ) -> list[Any]:
        """Return the responder's rows."""
        return self._rows(Statement(query, args))

    async def fetchrow(
        self, query: str, *args: Any, timeout: float | None = None, record_class: type[Any] | None = None
    ) -> Any:
        """Return the responder's first row, None without one."""
        rows = self._rows(Statement(query, args))
        return rows[0] if rows else None

    async def fetchval(self, query: str, *args: Any, column: int | str = 0, timeout: float | None = None) -> Any:
        """Return one column of the responder's first row, None without a row."""
        rows = self._rows(Statement(query, args))
        if not rows:
            return None
        row = rows[0]
        return list(row.values())[column] if isinstance(row, Mapping) and isinstance(column, int) else row[column]

    def defer(self, query: str, *args: Any) -> None:
        """Keep a statement that is sent before the next one, or by ``settle``."""
        self._check(query)
        self.deferred.append(Statement(query, args))

    def settle(self) -> None:
        """Send what was deferred, in order."""
        self._send_all()

    def close(self) -> None:
        """Refuse everything from now on: the transaction has ended."""
        self._is_closed = True

    def _check(self, query: str) -> None:
        if self._is_closed:
            raise NotAllowed(
                "this connection belongs to a transaction that has ended: use it only while the handler runs"
            )
        require_harmless(query)

    def _rows(self, statement: Statement) -> list[Any]:
        self._check(statement.query)
        if self._respond is None:
            raise NoAnswer(
                f"the in-memory store has no tables, so nothing answers {statement.query!r}: "
                "give MemoryStore(respond=...) a function from Statement to rows"
            )
        return list(self._send_all(statement) or ())

    def _send_all(self, *statements: Statement) -> Any:
        waiting, self.deferred = [*self.deferred, *statements], []
        answer = None
        for statement in waiting:
            self._check_state()
            if self._respond is not None:
                try:
                    answer = self._respond(statement)
                except BaseException:
                    self._note_error()
                    raise
            self.sent.append(statement)
        return answer
