"""Which fact becomes which log line.

Facts that can repeat without end (a key that fails for ever, a held horizon) are limited per subscription and kind, and
the lines left out are counted in the next one.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.domain import engine_events as facts
from headrace.domain.engine_events import EngineEvent
from headrace.telemetry.redaction import bounded, printable, shown_key

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

LINES_PER_WINDOW = 10
WINDOW_SECONDS = 60.0
PROGRESS_SECONDS = 30.0

Level = Literal["debug", "info", "warning", "error"]


@dataclass(slots=True)
class _Window:
    opened_at: float
    lines: int = 0
    left_out: int = 0


class LogObserver:
    """Writes facts as log lines; nothing per event at info, and no flood at any level above debug."""

    def __init__(
        self, log: "FilteringBoundLogger | None" = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._monotonic = monotonic
        self._windows: dict[tuple[str, str], _Window] = {}
        self._worked: dict[str, tuple[float, int]] = {}

    def notice(self, event: EngineEvent) -> None:
        """Write the fact, unless too many of its kind were written lately."""
        level, sentence, fields = _line(event)
        if isinstance(event, facts.Flushed):
            self._report_progress(event)
        if level == "debug":
            self._write(level, sentence, event.subscription, fields)
            return
        window = self._window_of(type(event).__name__, event.subscription)
        window.lines += 1
        if window.lines > LINES_PER_WINDOW:
            window.left_out += 1
            return
        self._write(level, sentence, event.subscription, fields)

    def _window_of(self, kind: str, subscription: str) -> _Window:
        now = self._monotonic()
        window = self._windows.get((kind, subscription))
        if window is not None and now - window.opened_at < WINDOW_SECONDS:
            return window
        if window is not None and window.left_out:
            self._write(
                "warning", "similar lines were left out", subscription, {"kind": kind, "lines": window.left_out}
            )
        window = self._windows[kind, subscription] = _Window(now)
        return window

    def _report_progress(self, event: facts.Flushed) -> None:
        now = self._monotonic()
        since, events = self._worked.get(event.subscription, (now, 0))
        events += event.events
        if now - since >= PROGRESS_SECONDS:
            fields = {"events": events, "seconds": round(now - since, 1)}
            self._write("info", "events handled", event.subscription, fields)
            since, events = now, 0
        self._worked[event.subscription] = (since, events)

    def _write(self, level: Level, sentence: str, subscription: str, fields: dict[str, Any]) -> None:
        named = {"subscription": subscription} if subscription else {}
        if self._log is None:
            # With the first line: most commands look, say what they saw in their own words, and never write one.
            from headrace.telemetry.logs import logger  # noqa: PLC0415

            self._log = logger()
        getattr(self._log, level)(sentence, **named, **fields)


Line = tuple[Level, str, dict[str, Any]]

# What is not named here is for debugging: its class and its fields.
_LINES: dict[type[EngineEvent], Callable[[Any], Line]] = {
    facts.KeySlowed: lambda e: (
        "info",
        "a key is slowed down",
        {"partition": shown_key(e.key), "retry_in": e.delay, "reason": bounded(e.reason)},
    ),
    facts.EventsVanished: lambda e: (
        "warning",
        "routed events are no longer in the event table",
        {"partition": shown_key(e.key), "first": e.first, "last": e.last, "count": e.count},
    ),
    facts.GroupRolledBack: lambda e: (
        "info",
        "a group was rolled back and is done key by key",
        {"error": bounded(e.error)},
    ),
    facts.GroupAbandoned: lambda e: (
        "error",
        "a group ended in an error that is no key's, its keys are due again",
        {"error": bounded(e.error)},
    ),
    facts.LeaseWasLost: lambda e: (
        "warning",
        "a lease was lost, its work is done elsewhere",
        {"reason": str(e.reason)},
    ),
    facts.TookOver: lambda e: (
        "warning",
        "an expired lease was taken over",
        {"from_worker": bounded(e.worker), "partitions": e.partitions},
    ),
    facts.MainStopped: lambda e: (
        "error",
        "the subscription stands still",
        {"class": e.error_class, "reason": bounded(e.reason), "retry_in": e.retry_in},
    ),
    facts.StoodBack: lambda e: (
        "warning",
        "another version of the app declares other types or keys and is in charge: this worker stands back",
        {"declared": e.declared},
    ),
    facts.TookCharge: lambda _: ("info", "no other version is at work any more: this worker is in charge", {}),
    facts.StatusChanged: lambda e: ("info", "the subscription has a new status", {"status": e.status}),
    facts.IdleRemoved: lambda e: ("info", "idle partitions were removed", {"partitions": e.partitions}),
    facts.KeysHeld: lambda e: ("info", "held keys left their group", {"keys": e.keys}),
    facts.HorizonHeld: lambda e: (
        "warning",
        "an open append holds the line, what is above it waits",
        {
            "holder": bounded(e.holder),
            "since_seconds": round(e.since_seconds, 1),
            "position": e.position,
            "head": e.head,
        },
    ),
    facts.WaitsForRetries: lambda _: ("info", "all else is handled: waiting for the next try of keys that failed", {}),
    facts.DatabaseLost: lambda e: (
        "warning",
        "the database does not answer",
        {"error": bounded(e.error), "retry_in": e.retry_in},
    ),
    facts.DatabaseFound: lambda _: ("info", "the database answers again", {}),
    facts.Draining: lambda e: (
        "info",
        "draining: what is claimed is finished, nothing more is claimed",
        {"leases": e.leases},
    ),
}


def _line(event: EngineEvent) -> Line:
    """Return level, sentence and fields of a fact."""
    if isinstance(event, facts.KeyFailed):
        if event.state == "backing off":
            return "warning", "a key failed and will be tried again", _failure(event)
        return "error", "a key was parked: see `headrace failures show`", _failure(event)
    known = _LINES.get(type(event))
    if known is not None:
        return known(event)
    names = (name for kind in type(event).__mro__ for name in getattr(kind, "__slots__", ()))
    return "debug", type(event).__name__, {name: getattr(event, name) for name in names if name != "subscription"}


def _failure(event: facts.KeyFailed) -> dict[str, Any]:
    return {
        "partition": shown_key(event.key),
        "position": event.position,
        "event_type": bounded(printable(event.event_type), 100),
        "state": event.state,
        "attempts": event.attempts,
        "retry_in": event.delay,
        # Where it came from is in the ledger, for `headrace failures show`.
        "error": bounded(event.error.partition("\n\nTraceback")[0]),
    }
