"""What a handler's statement must not be: one that ends the transaction, or changes the session beyond it.

The transaction also moves the handler's positions. The session goes to whoever is next: behind a pooler to another
process, without one to another handler. This looks at how a statement begins and never parses it: a guard against
mistakes, not against malice.
"""

import re

from headrace.domain.errors import NotAllowed

_FLAGS = re.IGNORECASE | re.DOTALL
_COMMENTS = r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*"
_ENDS = re.compile(
    _COMMENTS
    + r"(commit|end|abort|begin|start\s+transaction|prepare\s+transaction|rollback(?!\s+(?:(?:work|transaction)"
    r"\s+)?to\b))\b",
    _FLAGS,
)
_BEGINNINGS = {
    r"(set\s+(?!(local|constraints|transaction)\b)|reset\b|discard\b)": (
        "the setting would outlive the transaction: use SET LOCAL, or set_config(…, true)"
    ),
    r"(un)?listen\b": "notifications go to the session: listen on a connection of your own",
    r"(prepare|deallocate)\b": (
        "a prepared statement belongs to the session: give the statement and its arguments instead"
    ),
    r"create(\s+local|\s+global)?\s+temp(orary)?\s+table\b(?!.*\bon\s+commit\s+drop\b)": (
        "the table would outlive the transaction: add ON COMMIT DROP"
    ),
}
_CALLS = {
    r"\bpg_(try_)?advisory_lock(_shared)?\s*\(": (
        "the lock would outlive the transaction: use the function with _xact_ in its name"
    ),
    r"\bset_config\s*\((?:[^()]|\([^()]*\))*,\s*(false|'f(alse)?')\s*\)": (
        "the setting would outlive the transaction: use set_config(…, true)"
    ),
}
# A call may stand anywhere in a statement.
_OUTLIVES = [(re.compile(_COMMENTS + pattern, _FLAGS), fix) for pattern, fix in _BEGINNINGS.items()] + [
    (re.compile(r".*?" + pattern, _FLAGS), fix) for pattern, fix in _CALLS.items()
]


def require_harmless(query: str) -> None:
    """Return when a handler may send this statement.

    Raises:
        NotAllowed: it begins or ends a transaction, or leaves something in the session.

    """
    shown = repr(query.strip()[:40])
    if _ENDS.match(query):
        raise NotAllowed(
            f"{shown}: a handler cannot begin or end a transaction; its writes commit together with its position. "
            "Raise an error to undo them, or use a savepoint"
        )
    for pattern, fix in _OUTLIVES:
        if pattern.match(query):
            raise NotAllowed(f"{shown}: a handler's session is handed on, and {fix}")
