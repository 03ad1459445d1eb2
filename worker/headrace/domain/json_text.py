"""Values as the JSON text that an event table can keep.

PostgreSQL's jsonb keeps neither the character NUL nor half of a surrogate pair, and JSON knows no
infinity. Such data is refused at the append, where its author can still change it.
"""

import json
import re
from datetime import date, datetime
from typing import Any
from uuid import UUID

from headrace.domain.errors import BadInput

# An escape counts only after an even number of backslashes.
_ESCAPES = re.compile(r"(?<!\\)(?:\\\\)*\\u([0-9a-fA-F]{4})")
_CHARACTERS = re.compile("[\x00\ud800-\udfff]")


class RawJson(str):
    """JSON text that is taken as it is, numbers to the last digit."""

    __slots__ = ()


def json_text(value: Any, what: str = "data") -> str:
    """Return ``value`` as JSON text; UUIDs and times become their usual text.

    Raises:
        BadInput: JSON or jsonb cannot hold it; the message opens with ``what``.

    """
    if isinstance(value, RawJson):
        text = str(value)
    else:
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
        except RecursionError as error:
            raise BadInput(f"{what} is nested too deeply, or holds itself") from error
        except (TypeError, ValueError) as error:
            raise BadInput(f"{what} cannot be written as JSON: {error}") from error
    if problem := storable_problem(text):
        raise BadInput(f"{what} {problem}")
    return text


def storable_problem(text: str) -> str | None:
    """Tell why jsonb cannot keep this (otherwise valid) JSON text; None when it can."""
    if ("\x00" in text or not text.isascii()) and (found := _CHARACTERS.search(text)):
        return _problem(ord(found[0]))
    if "\\u" not in text:
        return None
    high_at = -1
    for escape in _ESCAPES.finditer(text):
        code = int(escape[1], 16)
        is_low = 0xDC00 <= code <= 0xDFFF  # noqa: PLR2004 - the bounds of low surrogates
        start = escape.end() - 6
        if high_at >= 0 and not (is_low and start == high_at):
            return _problem(0xD800)
        if is_low and high_at < 0:
            return _problem(code)
        high_at = escape.end() if 0xD800 <= code <= 0xDBFF else -1  # noqa: PLR2004 - high surrogates
        if code == 0:
            return _problem(0)
    return None if high_at < 0 else _problem(0xD800)


def checked_text(value: str, what: str) -> str:
    """Return a text that PostgreSQL can keep.

    Raises:
        BadInput: it is no text, or holds NUL or half of a surrogate pair.

    """
    if not isinstance(value, str):
        raise BadInput(f"{what} must be a text, not {type(value).__name__}")
    if found := _CHARACTERS.search(value):
        raise BadInput(f"{what} {_problem(ord(found[0]))}")
    return value


def _problem(code: int) -> str:
    if code == 0:
        return "holds the character NUL (\\u0000), which PostgreSQL cannot store: remove it or encode the text"
    return "holds half of a surrogate pair (\\ud800 to \\udfff), which is no character: remove it or encode the text"


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form; give plain values or a pydantic model")
