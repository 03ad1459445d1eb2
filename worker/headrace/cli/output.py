"""What commands print: for people on a terminal, plain when piped, JSON where a script asks.

Colour only where the stream is a terminal, or where FORCE_COLOR asks for it; NO_COLOR and TERM=dumb have none. Text
from the database is made printable first: a key must not move the cursor of whoever looks at it. What prints is loaded
by the first line that needs it: JSON needs no terminal, and help and a version need neither.
"""

import os
import sys
from collections.abc import Mapping, Sequence
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

# Tones of the middle: each can be read on black as well as on white, which no bright or plain colour of a terminal can.
GOOD, BUSY, CARE, BAD, QUIET = "color(28)", "color(31)", "color(130)", "color(160)", "color(243)"
PALETTE = (GOOD, BUSY, CARE, BAD, QUIET)
PIPE_WIDTH = 10_000
"""Columns of a stream that is no terminal: it has no edge to keep to."""


class OutputForm(StrEnum):
    """How data is printed."""

    TEXT = "text"
    JSON = "json"


Cell: TypeAlias = "str | Text"
"""A piece of text; a Text carries its colour."""


def colours(environment: Mapping[str, str], *, terminal: bool) -> bool:
    """Tell whether a stream gets colours: NO_COLOR says no, FORCE_COLOR yes, else a terminal that is not dumb does."""
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "0") != "0":
        return True
    return terminal and environment.get("TERM", "").lower() not in {"dumb", "unknown"}


def console(*, stderr: bool = False) -> "Console":
    """Return the console of a stream; piped, it does not wrap, and without colours it sends no escape at all."""
    from rich.console import Console  # noqa: PLC0415 - see above

    stream = sys.stderr if stderr else sys.stdout
    terminal = stream.isatty()
    wanted = colours(os.environ, terminal=terminal)
    return Console(
        file=stream,
        highlight=False,
        soft_wrap=not terminal,
        # Of what is made to have colours without being a terminal that says what it is, nothing better is known.
        color_system=("auto" if terminal and "TERM" in os.environ else "256") if wanted else None,
        # Told, or rich reads FORCE_COLOR as if it made a terminal of a pipe.
        force_terminal=terminal,
        no_color=not wanted,
        width=None if terminal else PIPE_WIDTH,
    )


def width_of(out: "Console") -> int | None:
    """Return the columns that there are; None where lines may be of any length."""
    return out.width if out.is_terminal else None


def coloured(text: str, style: str) -> "Text":
    """Return a piece of text that is shown in a style where there are colours."""
    from rich.text import Text  # noqa: PLC0415 - see above

    return Text(text, style)


def say(message: Cell = "", *, stderr: bool = False) -> None:
    """Print one line, as it is: nothing in it is markup."""
    console(stderr=stderr).print(message, markup=False, emoji=False)


def complain(message: str) -> None:
    """Print an error to standard error."""
    _tell("error: ", f"bold {BAD}", message)


def warn(message: str) -> None:
    """Print a warning to standard error."""
    _tell("warning: ", f"bold {CARE}", message)


def print_json(data: Any, *, one_line: bool = False) -> None:
    """Print one JSON document; times in RFC 3339, text that UTF-8 cannot carry written out."""
    import orjson  # noqa: PLC0415 - see above

    option = orjson.OPT_NON_STR_KEYS | (0 if one_line else orjson.OPT_INDENT_2)
    sys.stdout.write(orjson.dumps(_plain(data), option=option).decode() + "\n")


def print_rows(rows: Sequence[Sequence[Cell]], notes: Sequence[Sequence[Cell]] = ()) -> None:
    """Print rows in columns, each followed by its notes; rows too wide for a terminal go on in the next line."""
    from headrace.cli.tables import fitted, folded  # noqa: PLC0415 - see above

    out = console()
    width = width_of(out)
    for number, lines in enumerate(fitted(rows, width)):
        below = notes[number] if number < len(notes) else ()
        print_lines([*lines, *(line for note in below for line in folded(note, width, "    "))], out)


def print_lines(lines: Sequence[Cell], out: "Console | None" = None) -> None:
    """Print lines that were drawn for this width, as they are."""
    out = out or console()
    for line in lines:
        out.print(line, markup=False, emoji=False, soft_wrap=True)


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
