"""The database connection that a handler is given.

A handler never sees the driver: it writes through the transaction that also moves its positions, so
neither committing nor closing is offered. The names and signatures are asyncpg's, plus ``defer``.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class Connection(Protocol):
    """Statements on the transaction of the claim group at hand, with ``$1``, ``$2``, … for arguments.

    In an ``async def`` handler the methods are awaited. In a plain ``def`` handler the same names
    are blocking calls on the same transaction: ``db.fetchval(...)`` returns the value itself.
    Time-outs are in seconds and bound one statement. The database's errors are raised as it sends
    them; let them pass, they belong to the event at hand.
    """

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """Run a statement (or, without arguments, several) and return the last command tag."""
        ...

    async def executemany(self, command: str, args: Iterable[Sequence[Any]], *, timeout: float | None = None) -> None:
        """Run one statement for each sequence of arguments, in one go."""
        ...

    async def fetch(
        self, query: str, *args: Any, timeout: float | None = None, record_class: type[Any] | None = None
    ) -> list[Any]:
        """Run a query and return all its rows."""
        ...

    async def fetchrow(
        self, query: str, *args: Any, timeout: float | None = None, record_class: type[Any] | None = None
    ) -> Any:
        """Run a query and return its first row, None without one."""
        ...

    async def fetchval(self, query: str, *args: Any, column: int | str = 0, timeout: float | None = None) -> Any:
        """Run a query and return one column of its first row, None without a row."""
        ...

    def defer(self, query: str, *args: Any) -> None:
        """Queue a statement whose result nobody reads; never awaited, in both kinds of handler.

        It is sent in order, at the latest before the next read on this connection or the flush. Its
        error belongs to the event whose handler deferred it.
        """
        ...
