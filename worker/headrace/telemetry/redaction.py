"""What a line may show: no password, no text without end, nothing that a terminal would obey.

DSNs turn up in driver errors and in what users log; they are recognised by their form, wherever they stand.
"""

import re

MAX_TEXT = 500
MAX_KEY = 100

# A password that nobody escaped may hold a slash; in a PostgreSQL URL everything up to the last @ is taken for it.
_DSN_PASSWORD = re.compile(r"(\bpostgres(?:ql)?://[^\s:/?#@]*):[^\s\"']*@", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/?#@]*):[^\s/?#\"']*@", re.IGNORECASE)
_NAMED_PASSWORD = re.compile(
    r"(\b(?:password|passwd|pwd|sslpassword)\b[\"']?\s*[=:]\s*)('[^']*'|\"[^\"]*\"|[^\s&,;]+)", re.IGNORECASE
)
# C0 and C1 controls, and the marks that change the direction of what follows them.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def redacted(text: str) -> str:
    """Return the text with the passwords in it replaced by stars."""
    if "://" in text:
        text = _URL_PASSWORD.sub(r"\1:***@", _DSN_PASSWORD.sub(r"\1:***@", text))
    return _NAMED_PASSWORD.sub(r"\1***", text)


def bounded(text: str, limit: int = MAX_TEXT) -> str:
    """Return the text cut to ``limit`` characters, and how many more there were."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more)"


def printable(text: str) -> str:
    """Return the text with control characters and lone surrogates written out as escapes."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode("ascii"), text)


def shown_key(key: str) -> str:
    """Return a partition key as lines and tables show it."""
    return bounded(printable(key).replace("\n", "\\n").replace("\t", "\\t"), MAX_KEY)
