"""Counting what an engine sends, by the name that each statement has in `store/sql`.

A statement that is none of ours is the handlers' own. BEGIN and COMMIT are not heard; how many there were follows from
the statements that open a transaction.
"""

import re
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache

from headrace.runtime.compose import EngineOptions
from headrace.store import queries

HANDLERS = "a handler's own"
ROUTE = {"route_lock", "route", "unrouted_head", "read_batch"}
CLAIM = {"claim", "claim_log"}
LOAD = {"begin_guarded", "guard", "load", "load_log_head"}
FLUSH = {"fence", "fence_stands", "flush", "flush_log", "release", "fail", "slow", "hold"}
WORK = {*ROUTE, *CLAIM, *LOAD, HANDLERS, *FLUSH}
"""Route, claim, load, handle and flush."""
HORIZON = {"horizon_probe", "contiguous_from"}
TRANSACTIONS = {"route_lock", "fence", "load_log_head", "unrouted_head"}
"""First statements of transactions: before each there was a BEGIN, and a COMMIT follows."""

_STATEMENT = re.compile(r"(?:--[^\n]*\n)*(select|with|insert|update|delete|set|begin)\b")
_TOKEN = re.compile(r"\{\{ *[a-z_]+ *\}\}")


@dataclass(slots=True)
class Statements:
    """What one engine has sent: for its work, and by the keeper's clock."""

    sent: "Counter[str]" = field(default_factory=Counter)
    by_clock: "Counter[str]" = field(default_factory=Counter)
    texts: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def heard_by(self, options: EngineOptions) -> EngineOptions:
        """Return options of an engine whose statements are counted here."""
        return replace(options, on_statement=self._hear, on_clock_statement=self._hear_clock)

    def count(self, names: set[str]) -> int:
        """Return how many statements of these names were sent for work."""
        with self._lock:
            return sum(self.sent[name] for name in names)

    def ends(self) -> int:
        """Return how many BEGIN and COMMIT were sent for work; a guarded one begins with the guard itself."""
        return 2 * self.count(TRANSACTIONS) + self.count({"guard"})

    def clear(self) -> None:
        """Start counting anew."""
        with self._lock:
            self.sent.clear()
            self.by_clock.clear()
            self.texts.clear()

    def _hear(self, text: str) -> None:
        with self._lock:
            self.sent[name_of(text)] += 1
            self.texts.append(text)

    def _hear_clock(self, text: str) -> None:
        with self._lock:
            self.by_clock[name_of(text)] += 1
            self.texts.append(text)


@cache
def name_of(text: str) -> str:
    """Return the name of a statement of ours; HANDLERS when it is none."""
    for name, pattern in _patterns().items():
        if pattern.fullmatch(text):
            return name
    return HANDLERS


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    found = {}
    for name, text in queries._all_queries().items():
        if not _STATEMENT.match(text):
            continue  # a fragment of others
        fixed = _TOKEN.split(queries.qualify(text, queries.DEFAULT_SCHEMA))
        found[name] = re.compile(".*?".join(re.escape(part) for part in fixed), re.DOTALL)
    return found
