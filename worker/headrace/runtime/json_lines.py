"""JSON Lines as events to append: one event a line, refused with its number or taken to the last digit.

``data`` stays the text that it was, so that no number changes on its way. A line without ``event_id`` gets one from
the running sha256 of everything up to its end: the same text in the same place of a file is the same event, whether it
comes plain, packed or through a pipe, and however long the file has grown since.
"""

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BufferedReader
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import IO, Any, NoReturn, cast
from uuid import UUID

from headrace.domain.errors import BadInput
from headrace.domain.event import NewEvent
from headrace.domain.json_text import RawJson

MAX_LINE_BYTES = 256 * 1024 * 1024
GZIP_MAGIC = b"\x1f\x8b"
FIELDS = ("stream", "type", "data", "recorded_at", "tags", "metadata", "event_id")
# Facts that the database gives anew; an exported log carries them.
IGNORED_FIELDS = ("position", "version", "appended_at", "commit_id")

_BLANK = re.compile(r"[ \t\r\n]*")
# What a value too deep for the decoder is made of: strings, brackets, and all between them.
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}]|[^][{}"]+', re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class BadLine(BadInput):
    """A line that cannot be imported; ``number`` counts from 1."""

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(f"line {number}: {problem}")
        self.number = number
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Line:
    """One event of a file, with the number of its line."""

    number: int
    stream: str
    event: NewEvent


def unpacked(file: IO[bytes]) -> IO[bytes]:
    """Return a stream of the unpacked text; gzip is recognised by its first bytes, whatever the name."""
    buffered = file if isinstance(file, BufferedReader) else BufferedReader(cast("Any", file))
    if buffered.peek(2)[:2] != GZIP_MAGIC:
        return buffered
    return BufferedReader(cast("Any", gzip.GzipFile(fileobj=buffered)), 1 << 18)


def read_lines(file: IO[bytes]) -> Iterator[Line]:
    """Yield the events of a file in order; empty lines are passed over.

    Raises:
        BadLine: a line is no event; what was yielded before it is good.

    """
    digest = hashlib.sha256()
    number = 0
    while raw := _next_line(file, number + 1):
        number += 1
        # Without the line's end: the last line may get one only when the log has grown.
        text = raw.removesuffix(b"\n").removesuffix(b"\r")
        digest.update(text)
        if text.strip():
            yield _event_of(number, text, digest.digest())
        digest.update(raw[len(text) :])


def derived_id(digest: bytes) -> UUID:
    """Return the event id of a line from the sha256 of the text up to its end: a UUID of version 8 (RFC 9562, 5.8)."""
    value = bytearray(digest[:16])
    value[6] = value[6] & 0x0F | 0x80
    value[8] = value[8] & 0x3F | 0x80
    return UUID(bytes=bytes(value))


def _next_line(file: IO[bytes], number: int) -> bytes:
    try:
        raw = file.readline(MAX_LINE_BYTES)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadLine(number, f"the packed file is damaged or cut short ({error}): pack it again") from error
    if len(raw) >= MAX_LINE_BYTES:
        raise BadLine(number, f"it is longer than {MAX_LINE_BYTES >> 20} MiB: is this a file with one event a line?")
    return raw


def _event_of(number: int, raw: bytes, digest: bytes) -> Line:
    try:
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise BadLine(number, f"it is not UTF-8 (byte {error.start + 1}): convert the file to UTF-8") from error
    try:
        fields = _fields(text)
        stream, type_ = _text(fields, "stream"), _text(fields, "type")
        if "data" not in fields:
            raise BadInput("the field 'data' is missing")
        event = NewEvent(
            type_,
            fields["data"],
            tags=_tags(fields),
            metadata=_metadata(fields),
            event_id=_event_id(fields, digest),
            recorded_at=_recorded_at(fields),
        )
    except BadInput as error:
        raise BadLine(number, str(error)) from error
    return Line(number, stream, event)


def _fields(text: str) -> dict[str, Any]:
    """Return the fields of one line; ``data`` as the text that it is written in."""
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise BadInput("it is not a JSON object: write {…} with the fields stream, type and data")
    fields: dict[str, Any] = {}
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        if fields:
            at = _skip(text, _expect(text, at, ","))
        name, at = _name(text, at)
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        value, end = _value(text, at)
        if name in fields:
            raise BadInput(f"the field {name!r} is there twice")
        if name in FIELDS:
            fields[name] = RawJson(text[at:end]) if name == "data" else value
        elif name not in IGNORED_FIELDS:
            raise BadInput(f"{name!r} is no field of an event: put it into data or metadata ({', '.join(FIELDS)})")
        at = _skip(text, end)
    if _skip(text, at + 1) != len(text):
        raise BadInput("something follows the event: write one event a line")
    return fields


def _name(text: str, at: int) -> tuple[str, int]:
    at = _expect(text, at, '"')
    try:
        name, end = scanstring(text, at, True)
    except json.JSONDecodeError as error:
        raise BadInput(f"it is not JSON: {error.msg} at character {error.pos + 1}") from error
    return name, end


def _value(text: str, at: int) -> tuple[Any, int]:
    """Return the value that starts here and where it ends."""
    try:
        return cast("tuple[Any, int]", _scan_once(text, at))
    except StopIteration as error:
        raise BadInput(f"it is not JSON: a value is missing at character {error.value + 1}") from error
    except json.JSONDecodeError as error:
        raise BadInput(f"it is not JSON: {error.msg} at character {error.pos + 1}") from error
    except (RecursionError, ValueError):
        # Deeper, or a number longer, than Python reads; PostgreSQL has the last word on what is in it.
        return None, _end_of_value(text, at)


def _end_of_value(text: str, at: int) -> int:
    number = _NUMBER.match(text, at)
    if number:
        return number.end()
    depth = 0
    for piece in _PIECE.finditer(text, at):
        if piece[0] in "[{":
            depth += 1
        elif piece[0] in "]}":
            depth -= 1
            if depth == 0:
                return piece.end()
    raise BadInput("it is not JSON: a bracket is not closed")


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _expect(text: str, at: int, character: str) -> int:
    if text[at : at + 1] != character:
        found = repr(text[at]) if at < len(text) else "the end of the line"
        raise BadInput(f"it is not JSON: {character!r} was expected at character {at + 1}, not {found}")
    return at + 1


def _no_number(name: str) -> NoReturn:
    raise BadInput(f"it is not JSON: {name} is no number")


# The one way of the standard library to learn where a value ends without building the rest of the line.
_scan_once = json.JSONDecoder(parse_constant=_no_number).scan_once  # type: ignore[attr-defined]


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        raise BadInput(f"the field {name!r} is missing")
    if not isinstance(value, str) or not value:
        raise BadInput(f"{name} must be a text that is not empty, not {_shown(value)}")
    return value


def _tags(fields: dict[str, Any]) -> tuple[str, ...]:
    value = fields.get("tags")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise BadInput(f"tags must be a list of texts, not {_shown(value)}")
    return tuple(value)


def _metadata(fields: dict[str, Any]) -> dict[str, Any]:
    value = fields.get("metadata")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput(f"metadata must be an object, not {_shown(value)}")
    return value


def _event_id(fields: dict[str, Any], digest: bytes) -> UUID:
    value = fields.get("event_id")
    if value is None:
        return derived_id(digest)
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError) as error:
        raise BadInput(f"event_id must be a UUID, not {_shown(value)}") from error


def _recorded_at(fields: dict[str, Any]) -> datetime | None:
    value = fields.get("recorded_at")
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)
    except (ValueError, TypeError) as error:
        raise BadInput(f"recorded_at must be a time like 2026-03-01T12:30:00Z, not {_shown(value)}") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"  # noqa: PLR2004 - enough to find it in the line
