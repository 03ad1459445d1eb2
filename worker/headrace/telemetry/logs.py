"""Structured log lines: how they are written, and which fact becomes which line.

JSON when piped, for people on a terminal. Facts that can repeat without end (a key that fails for ever, a held
horizon) are limited per subscription and kind, and the lines left out are counted in the next one. What users write
through ``logging`` takes the same way out, so passwords are taken out of their lines too.
"""

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TextIO

import orjson
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from headrace.domain import engine_events as facts
from headrace.domain.engine_events import EngineEvent
from headrace.domain.ids import PartitionKey
from headrace.telemetry.redaction import bounded, printable, redacted, shown_key

LINES_PER_WINDOW = 10
WINDOW_SECONDS = 60.0
PROGRESS_SECONDS = 30.0
MAX_FIELD = 2 * 1024
MAX_ITEMS = 100
MAX_TRACE = 8 * 1024
TRACES = ("exception", "stack")

Level = Literal["debug", "info", "warning", "error"]


def configure_logging(form: str | None, level: str, stream: TextIO | None = None) -> None:
    """Send every log line of this process to ``stream`` (standard error) in one form.

    ``form`` is json, console, or None: console on a terminal and json elsewhere.
    """
    out = stream or sys.stderr
    for_people = (form or ("console" if out.isatty() else "json")) == "console"
    stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S" if for_people else "iso", utc=not for_people, key="time")
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        stamp,
        structlog.stdlib.ExtraAdder(),
    ]
    tail: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    tail += [structlog.processors.format_exc_info, _make_safe]
    tail += [_without_our_name, _for_people(out.isatty())] if for_people else [_for_machines()]
    handler = logging.StreamHandler(out)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=tail))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # A log that cannot be written (its reader is gone) must not add its own errors to the trouble.
    logging.raiseExceptions = False
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared[:3],
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def logger(name: str = "headrace") -> FilteringBoundLogger:
    """Return a structured logger: ``log.info("sentence", subscription=…)``."""
    return structlog.get_logger(name)  # type: ignore[no-any-return]


@dataclass(slots=True)
class _Window:
    opened_at: float
    lines: int = 0
    left_out: int = 0


class LogObserver:
    """Writes facts as log lines; nothing per event at info, and no flood at any level above debug."""

    def __init__(
        self, log: FilteringBoundLogger | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log or logger()
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


def _make_safe(_log: Any, _method: str, fields: EventDict) -> EventDict:
    """Take passwords and terminal controls out of every text of a line, and bound it."""
    return {name: _safe(value, MAX_TRACE if name in TRACES else MAX_FIELD) for name, value in fields.items()}


def _safe(value: Any, limit: int) -> Any:
    match value:
        case PartitionKey():
            return shown_key(redacted(value))
        case str():
            return bounded(printable(redacted(value)), limit)
        case None | bool() | int() | float():
            return value
        case list() | tuple():
            return [_safe(item, limit) for item in value[:MAX_ITEMS]]
        case _:
            return bounded(printable(redacted(str(value))), limit)


def _for_people(colours: bool) -> Processor:
    return structlog.dev.ConsoleRenderer(
        colors=colours,
        pad_event_to=0,
        pad_level=False,
        timestamp_key="time",
        exception_formatter=structlog.dev.plain_traceback,
    )


def _for_machines() -> Processor:
    return structlog.processors.JSONRenderer(serializer=_to_json)


def _without_our_name(_log: Any, _method: str, fields: EventDict) -> EventDict:
    """Leave the logger's name to lines that are not ours."""
    if str(fields.get("logger", "")).partition(".")[0] == "headrace":
        del fields["logger"]
    return fields


def _to_json(fields: dict[str, Any], **_: Any) -> str:
    first = {name: fields.pop(name) for name in ("time", "level", "event") if name in fields}
    return orjson.dumps(first | fields, option=orjson.OPT_NON_STR_KEYS).decode()
