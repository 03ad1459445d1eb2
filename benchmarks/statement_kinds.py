"""From the text of an executed statement to its name in the product's `.sql` files, and to what caused it."""

import re
from functools import cache
from importlib import resources

from headrace.store.queries import DEFAULT_SCHEMA, qualify, split_queries

HANDLER = "handler"
"""Statements of user code."""

HORIZON = "horizon_probe"

WORK = frozenset(
    {
        *("route_lock", "route", "unrouted_head", "read_batch"),
        *("claim", "claim_log", "guard", "load", "load_log_head", "release", "hold"),
        *("fence", "fence_stands", "flush", "flush_log", "fail", "slow"),
        HANDLER,
    }
)
"""What events cause, from route to flush."""

CLOCK = frozenset(
    {
        *(HORIZON, "contiguous_from", "horizon_holder", "stored_position", "due_runs"),
        *("renew", "take_over", "beat", "worker_beat", "activate", "begin_retry"),
    }
)
"""What time causes, whatever connection it comes from."""

_TOKEN = re.compile(r"\{\{ *[a-z_]+ *\}\}")
_STATEMENT = re.compile(r"(\s|--[^\n]*\n)*(select|insert|update|delete|with|set|begin)\b", re.IGNORECASE)


@cache
def kind_of(text: str) -> str:
    """Return the name of a statement; HANDLER for those that the product did not write."""
    return next((name for name, pattern in _patterns() if pattern.fullmatch(text)), HANDLER)


def cause_of(kind: str) -> str:
    """Return 'work', 'clock', or 'rest': starting and stopping."""
    return "work" if kind in WORK else "clock" if kind in CLOCK else "rest"


@cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    """Return a pattern per named query: its text with anything in the place of fragments; the longest text first."""
    found: list[tuple[int, str, re.Pattern[str]]] = []
    for file in (resources.files("headrace.store") / "sql").iterdir():
        if not file.name.endswith(".sql"):
            continue
        for name, text in split_queries(file.name, file.read_text("utf-8")).items():
            parts = _TOKEN.split(qualify(text, DEFAULT_SCHEMA))
            if not _STATEMENT.match(parts[0]):
                continue  # a fragment, or a statement that opens with one
            pattern = re.compile(".*?".join(map(re.escape, parts)), re.DOTALL)
            found.append((sum(map(len, parts)), name, pattern))
    return [(name, pattern) for _, name, pattern in sorted(found, key=lambda f: -f[0])]
