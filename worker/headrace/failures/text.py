"""The text of an error, safe to store and to show.

What a handler raises may hold anything: NUL, half characters, a megabyte of data, terminal codes, a
connection string with its password. PostgreSQL must be able to store the result, a terminal to show
it, and no secret of a known form may be in it. Nothing here may raise: a failure that cannot be
written is a failure that nobody sees.
"""

import re
import traceback
from dataclasses import dataclass
from typing import Final

MAX_BYTES: Final = 8192
MAX_MESSAGE_BYTES: Final = 2048
MAX_TYPE_BYTES: Final = 250
FRAMES: Final = -12
"""Of each traceback the last frames are kept: where the error was raised."""

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# Every quantifier is bounded, so that no text takes long. What looks like a port is no password.
_SECRETS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"""(://[^\s"'<>:/@]{0,255}):(?!\d{1,5}(?:[/?#\s"'<>]|$))[^\s"'<>]{1,512}@"""),
        r"\1:***@",
    ),
    (
        re.compile(
            r"""((?:password|passwd|pwd|passphrase|secret|api[_-]?key)["']?\s{0,3}[=:]\s{0,3}"""
            r"""|token(?:\s{0,3}=|["']\s{0,3}:)\s{0,3})(?!\*\*\*)("[^"]{0,512}"?|'[^']{0,512}'?|[^\s,;&"']{1,512})""",
            re.IGNORECASE,
        ),
        r"\1***",
    ),
    (re.compile(r"\b(bearer|basic) {1,3}[A-Za-z0-9+/_.~-]{16,2048}={0,2}", re.IGNORECASE), r"\1 ***"),
)


@dataclass(frozen=True, slots=True)
class ErrorText:
    """An error as it is stored: its class, its message, and both with the end of its traceback."""

    type: str
    message: str
    text: str


def text_of(error: BaseException) -> ErrorText:
    """Return what may be stored and shown of an error; at most 8 kB, chained causes included; never raises."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    name = safe_text(name, MAX_TYPE_BYTES)
    message = safe_text(_printed(error), MAX_MESSAGE_BYTES)
    opening = f"{name}: {message}" if message else name
    left = MAX_BYTES - len(opening.encode()) - 2
    return ErrorText(name, message, f"{opening}\n\n{safe_text(_traced(error), left)}")


def safe_text(text: str, max_bytes: int = MAX_BYTES) -> str:
    """Return ``text`` without secrets and unstorable characters, head and tail of it if it is too long.

    Control characters (except line feed and tab) and lone surrogates are shown by their numbers;
    ``max_bytes`` counts UTF-8 bytes.
    """
    shortened = len(text) > 4 * max_bytes
    if shortened:
        # Far more than is kept, so that a secret which is cut here lies in what is dropped below.
        shown = text[: 2 * max_bytes] + text[-2 * max_bytes :]
    else:
        shown = text
    for pattern, mask in _SECRETS:
        shown = pattern.sub(mask, shown)
    encoded = _UNSAFE.sub(_numbered, shown).encode()
    return _cut(encoded, max_bytes, len(text)) if shortened or len(encoded) > max_bytes else encoded.decode()


def _cut(encoded: bytes, max_bytes: int, length: int) -> str:
    note = f"\n… left out here; the whole has {length:,} characters …\n".encode()[:max_bytes]
    room = max_bytes - len(note)
    head = encoded[: room // 3]
    tail = encoded[max(len(head), len(encoded) - (room - len(head))) :]
    # Whatever a cut has halved is dropped.
    return (head + note + tail).decode(errors="ignore")


def _numbered(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004 - one byte


def _printed(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as problem:  # noqa: BLE001 - an error that cannot be printed is still one to report
        return f"<its text cannot be made: {type(problem).__qualname__}>"


def _traced(error: BaseException) -> str:
    try:
        return "".join(traceback.TracebackException.from_exception(error, limit=FRAMES, compact=True).format())
    except Exception as problem:  # noqa: BLE001 - the same: source files, notes and causes may be anything
        return f"<its traceback cannot be made: {type(problem).__qualname__}>"
