"""Structured log lines: how they are written.

JSON when piped, for people on a terminal. What users write through ``logging`` takes the same way out, so passwords are
taken out of their lines too. Which fact becomes which line is told in ``telemetry.lines``.
"""

import logging
import sys
from typing import Any, TextIO

import orjson
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from headrace.domain.ids import PartitionKey
from headrace.telemetry.redaction import bounded, printable, redacted, shown_key

MAX_FIELD = 2 * 1024
MAX_ITEMS = 100
MAX_TRACE = 8 * 1024
TRACES = ("exception", "stack")


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
