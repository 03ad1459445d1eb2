"""Tables in memory that can take back what was written to them.

A statement of PostgreSQL happens as a whole or not at all, and a transaction can be rolled back to a
savepoint. Rows here are immutable values, so a journal of the rows that were replaced is all that is
needed for both. No locks, no snapshots: whatever reads between two writes of one block is a mistake.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
R = TypeVar("R")

_Undo = Callable[[], None]


class Journal:
    """What undoes the writes of the block that is running now."""

    def __init__(self) -> None:
        self._undo: list[_Undo] | None = None

    def note(self, undo: _Undo) -> None:
        """Remember how to undo one write; outside a block nothing is kept."""
        if self._undo is not None:
            self._undo.append(undo)

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Run a block (without awaiting in it) whose writes are all taken back when it raises."""
        outer, self._undo = self._undo, []
        try:
            yield
        except BaseException:
            self._take_back()
            self._undo = outer
            raise
        if outer is not None:
            outer.extend(self._undo)
        self._undo = outer

    def rehearse(self, operation: Callable[[], R]) -> R:
        """Return what ``operation`` returns (or raise what it raises) and take all its writes back."""
        outer, self._undo = self._undo, []
        try:
            return operation()
        finally:
            self._take_back()
            self._undo = outer

    def _take_back(self) -> None:
        for undo in reversed(self._undo or []):
            undo()


class Table(Mapping[K, V], Generic[K, V]):
    """Rows by primary key, in the order of their insertion."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rows: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        return self._rows[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, key: K, row: V) -> None:
        """Insert or replace one row."""
        if key in self._rows:
            old = self._rows[key]
            self._journal.note(lambda: self._rows.__setitem__(key, old))
        else:
            self._journal.note(lambda: self._rows.__delitem__(key))
        self._rows[key] = row

    def drop(self, key: K) -> V | None:
        """Delete one row and return it; None when there is none."""
        if key not in self._rows:
            return None
        old = self._rows.pop(key)
        self._journal.note(lambda: self._rows.__setitem__(key, old))
        return old
