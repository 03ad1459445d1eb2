"""What commands print: for people on a terminal, plain when piped, JSON where a script asks.

Colour only where the stream is a terminal. Text from the database is made printable first: a key must not move the
cursor of whoever looks at it. What prints is loaded by the first line that needs it: JSON needs no terminal, and help
and a version need neither.
"""

import sys
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from headrace.telemetry.redaction import bounded, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

MINUTE, HOUR, DAY = 60, 3600, 86400
TEN = 10


class OutputForm(StrEnum):
    """How data is printed."""

    TEXT = "text"
    JSON = "json"


Cell: TypeAlias = "str | Text"
"""A piece of text; a Text carries its colour."""


def console(*, stderr: bool = False) -> "Console":
    """Return the console of a stream; piped, it neither wraps nor colours."""
    from rich.console import Console  # noqa: PLC0415 - see above

    stream = sys.stderr if stderr else sys.stdout
    made = Console(file=stream, highlight=False, soft_wrap=not stream.isatty())
    if not made.is_terminal:
        # Without a terminal there is no width to keep to.
        made = Console(file=stream, highlight=False, soft_wrap=True, no_color=True, width=10_000)
    return made


def coloured(text: str, style: str) -> "Text":
    """Return a piece of text that is shown in a style where there are colours."""
    from rich.text import Text  # noqa: PLC0415 - see above

    return Text(text, style)


def say(message: Cell = "", *, stderr: bool = False) -> None:
    """Print one line, as it is: nothing in it is markup."""
    console(stderr=stderr).print(message, markup=False, emoji=False)


def complain(message: str) -> None:
    """Print an error to standard error."""
    _tell("error: ", "bold red", message)


def warn(message: str) -> None:
    """Print a warning to standard error."""
    _tell("warning: ", "bold yellow", message)


def print_json(data: Any) -> None:
    """Print one JSON document; times in RFC 3339, text that UTF-8 cannot carry written out."""
    import orjson  # noqa: PLC0415 - see above

    text = orjson.dumps(_plain(data), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()
    sys.stdout.write(text + "\n")


def print_rows(rows: Sequence[Sequence[Cell]], notes: Sequence[Sequence[Cell]] = ()) -> None:
    """Print rows in aligned columns, two blanks apart, each followed by its notes; the last column is not padded."""
    from rich.cells import cell_len  # noqa: PLC0415 - see above

    widths = [max((cell_len(str(row[at])) for row in rows if at < len(row)), default=0) for at in range(_columns(rows))]
    out = console()
    for number, row in enumerate(rows):
        line = coloured("", "")
        for at, cell in enumerate(row):
            line.append_text(coloured(cell, "") if isinstance(cell, str) else cell)
            if at < len(row) - 1:
                line.append(" " * (widths[at] - cell_len(str(cell)) + 2))
        line.rstrip()
        out.print(line, markup=False, emoji=False, soft_wrap=True)
        for note in notes[number] if number < len(notes) else ():
            out.print(note, markup=False, emoji=False, soft_wrap=True)


def shown(text: str, limit: int = 200) -> str:
    """Return text from elsewhere as it may be printed."""
    return bounded(printable(text), limit)


def duration(seconds: float | None) -> str:
    """Return a duration for people: 0.4 s, 12 s, 3 min, 2.5 h, 4 d."""
    if seconds is None:
        return "unknown"
    if seconds < TEN:
        return f"{max(seconds, 0.0):.1f} s"
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * HOUR:
        return f"{seconds / MINUTE:.0f} min"
    if seconds < 2 * DAY:
        return f"{seconds / HOUR:.1f} h"
    return f"{seconds / DAY:.0f} d"


def count(number: int, thing: str, things: str | None = None) -> str:
    """Return a number and its noun: 1 event, 1,204 events."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def _tell(what: str, style: str, message: str) -> None:
    line = coloured(what, style)
    line.append(shown(message, 4000), style="not bold default")
    say(line, stderr=True)


def _columns(rows: Sequence[Sequence[Cell]]) -> int:
    return max((len(row) for row in rows), default=0)


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case str():
            return str(value).encode("utf-8", "backslashreplace").decode()
        case None | bool() | int() | float() | datetime() | UUID():
            return value
        case _:
            return str(value)
