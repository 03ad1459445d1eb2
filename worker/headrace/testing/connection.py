"""The connection of handlers under test: it keeps statements and knows no table.

What a handler writes can be asserted as text and arguments; what it reads is answered by a function
of the test's author. A read model that must really hold rows needs PostgreSQL, not this.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.domain.errors import NotAllowed, UsageError
from headrace.domain.handler_statements import require_harmless
from headrace.domain.unawaited import Calls


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
        self._calls = Calls()

    def execute(self, query: str, *args: Any, timeout: float | None = None) -> Coroutine[Any, Any, str]:
        """Keep one statement; the responder, if there is one, may raise for it."""
        return self._calls.made("execute", query, self._execute(query, args))

    def executemany(
        self, command: str, args: Iterable[Sequence[Any]], *, timeout: float | None = None
    ) -> Coroutine[Any, Any, None]:
        """Keep one statement for each sequence of arguments."""
        return self._calls.made("executemany", command, self._executemany(command, args))

    def fetch(
        self, query: str, *args: Any, timeout: float | None = None, record_class: type[Any] | None = None
    ) -> Coroutine[Any, Any, list[Any]]:
        """Return the responder's rows."""
        return self._calls.made("fetch", query, self._fetch(query, args))

    def fetchrow(
        self, query: str, *args: Any, timeout: float | None = None, record_class: type[Any] | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Return the responder's first row, None without one."""
        return self._calls.made("fetchrow", query, self._fetchrow(query, args))

    def fetchval(
        self, query: str, *args: Any, column: int | str = 0, timeout: float | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Return one column of the responder's first row, None without a row."""
        return self._calls.made("fetchval", query, self._fetchval(query, args, column))

    async def _execute(self, query: str, args: tuple[Any, ...]) -> str:
        self._check(query)
        self._send_all(Statement(query, args))
        return query.split(None, 1)[0].upper() if query.strip() else ""

    async def _executemany(self, command: str, args: Iterable[Sequence[Any]]) -> None:
        self._check(command)
        self._send_all(*(Statement(command, tuple(row)) for row in args))

    async def _fetch(self, query: str, args: tuple[Any, ...]) -> list[Any]:
        return self._rows(Statement(query, args))

    async def _fetchrow(self, query: str, args: tuple[Any, ...]) -> Any:
        rows = self._rows(Statement(query, args))
        return rows[0] if rows else None

    async def _fetchval(self, query: str, args: tuple[Any, ...], column: int | str) -> Any:
        row = await self._fetchrow(query, args)
        if row is None:
            return None
        return list(row.values())[column] if isinstance(row, Mapping) and isinstance(column, int) else row[column]

    def defer(self, query: str, *args: Any) -> None:
        """Keep a statement that is sent before the next one, or by ``settle``."""
        self._check(query)
        self.deferred.append(Statement(query, args))

    def settle(self) -> None:
        """Send what was deferred, in order."""
        self._send_all()

    def drop_unsent(self) -> None:
        """Forget what was deferred and not sent, and what was called and not awaited."""
        self.deferred.clear()
        self._calls.forget()

    def require_awaited(self) -> None:
        """Raise NotAllowed when a call was not awaited; to be asked at the end of a handler, never within it."""
        self._calls.require_awaited()

    def close(self) -> None:
        """Refuse everything from now on: the transaction has ended."""
        self._calls.forget()
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
