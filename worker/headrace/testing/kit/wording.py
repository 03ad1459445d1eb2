"""What a failed comparison says: what was expected, what is there, and what that may come from.

Pure: from values to text. Nothing is cut away that tells two rows apart; long lists are.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

MOST_LINES = 30
Row = tuple[Any, ...]


def difference(query: str, expected: Sequence[Row], found: Sequence[Row], *, in_order: bool) -> str | None:
    """Return how found rows differ from the expected ones, or None when they do not."""
    if list(found) == list(expected):
        return None
    missing, surplus = _without(expected, found), _without(found, expected)
    if not missing and not surplus:
        if not in_order:
            return None
        rows = [f"  expected {wanted!r}, found {there!r}" for wanted, there in zip(expected, found, strict=True)]
        return _page(f"the rows of {_line(query)} are right, their order is not:", rows)
    rows = [f"  missing     {row!r}" for row in missing] + [f"  unexpected  {row!r}" for row in surplus]
    same = len(expected) - len(missing)
    return _page(f"the rows of {_line(query)} are not the expected ones ({same} of {len(expected)} are there):", rows)


def unsent(wanted: str, args: Row, sent: Iterable[tuple[str, Row]]) -> str:
    """Return what to say of a statement that no handler has sent."""
    rows = [f"  {_line(query)}  {values!r}" for query, values in sent]
    with_values = f" with {args!r}" if args else ""
    head = f"no handler has sent {_line(wanted)!r}{with_values}; sent and committed was:"
    return _page(head, rows or ["  nothing"])


def squeezed(text: str) -> str:
    """Return a statement with its blanks and line ends made one blank each."""
    return " ".join(text.split())


def _without(rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """Return the rows that the others lack; rows may hold what cannot be hashed."""
    left = Counter(map(repr, others))
    found = []
    for row in rows:
        if left[repr(row)] > 0:
            left[repr(row)] -= 1
        else:
            found.append(row)
    return found


def _line(query: str) -> str:
    text = squeezed(query)
    return text if len(text) <= 100 else f"{text[:99]}…"  # noqa: PLR2004 - a line of a terminal


def _page(head: str, rows: Sequence[str]) -> str:
    shown = list(rows[:MOST_LINES])
    if len(rows) > MOST_LINES:
        shown.append(f"  … and {len(rows) - MOST_LINES} more")
    return "\n".join([head, *shown])
