"""Facts become figures and lines: counted once, bounded, without secrets, and never to the engine's harm."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.testing import CapturingLogger

from headrace.domain.engine_events import (
    DatabaseFound,
    EngineEvent,
    EventsVanished,
    Flushed,
    Handled,
    KeyFailed,
    KeySlowed,
    LeaseWasLost,
    LossReason,
    TookOver,
)
from headrace.domain.ids import LeaseId, PartitionKey, Position, Run
from headrace.telemetry import logs
from headrace.telemetry.fanout import Fanout
from headrace.telemetry.lines import LINES_PER_WINDOW, WINDOW_SECONDS, LogObserver
from headrace.telemetry.logs import configure_logging
from headrace.telemetry.metrics import SAMPLE_LIFE_SECONDS, Metrics, Sample
from headrace.telemetry.redaction import redacted, shown_key


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def failed(key: str = "k", state: str = "backing off", subscription: str = "orders", error: str = "boom") -> KeyFailed:
    """Return the fact that a key failed."""
    return KeyFailed(subscription, PartitionKey(key), Position(7), "Order placed", state, 1, 2.0, error)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Return one sample of the registry."""
    return metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where configured log lines go; the process's logging is put back afterwards."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level, logging.raiseExceptions)
    yield io.StringIO()
    root.handlers[:], root.level, logging.raiseExceptions = before
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """Return JSON lines as dictionaries."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_handled_is_counted_by_outcome() -> None:
    """headrace_handled_total tells apart what was handled, failed, was parked, slowed or had vanished."""
    metrics = Metrics()
    for event in (
        Flushed("orders", 0, LeaseId(1), 40, 3, 0.01),
        failed(),
        failed(state="parked"),
        failed(state="waiting"),
        KeySlowed("orders", PartitionKey("k"), 1.0, "busy"),
        EventsVanished("orders", PartitionKey("k"), Position(1), Position(2), 2),
    ):
        metrics.notice(event)

    outcomes = {"handled": 40, "failed": 1, "parked": 2, "slowed": 1, "vanished": 2}
    for outcome, count in outcomes.items():
        assert value(metrics, "headrace_handled_total", subscription="orders", outcome=outcome) == count


def test_lost_lease_is_counted_once() -> None:
    """Renewal, fence and session may each find the same lease lost: it is one loss, two leases are two."""
    metrics = Metrics()
    for reason in LossReason:
        metrics.notice(LeaseWasLost("orders", LeaseId(1), reason))
    metrics.notice(LeaseWasLost("orders", LeaseId(2), LossReason.FENCE))

    assert value(metrics, "headrace_lease_lost_total", subscription="orders") == 2


def test_times_are_histograms() -> None:
    """headrace_handle_seconds and headrace_flush_seconds sum and count what took how long."""
    metrics = Metrics()
    metrics.notice(Handled("orders", 0, 10, 0.5))
    metrics.notice(Flushed("orders", 0, LeaseId(1), 10, 1, 0.25))

    assert value(metrics, "headrace_handle_seconds_sum", subscription="orders") == 0.5
    assert value(metrics, "headrace_flush_seconds_count", subscription="orders") == 1


def test_ten_thousand_keys_give_as_many_series_as_ten() -> None:
    """OBS-4: the label set is bounded, a partition key is never a label."""
    few, many = Metrics(), Metrics()
    for metrics, keys in ((few, 10), (many, 10_000)):
        for key in range(keys):
            metrics.notice(failed(f"key-{key}"))

    assert few.render()[0].count(b"\n") == many.render()[0].count(b"\n")


def test_gauges_follow_the_samples() -> None:
    """A gauge shows the last sample; a subscription that is gone and a value that is unknown show nothing."""
    metrics = Metrics()
    metrics.show([Sample("orders", 5, 2, 1.5, 1, 0.0), Sample("mails", 9, 9, None, 0, None)])
    metrics.show([Sample("orders", 4, 1, None, 0, None)])

    assert value(metrics, "headrace_backlog_events", subscription="orders") == 4
    assert value(metrics, "headrace_unrouted_events", subscription="orders") == 1
    assert value(metrics, "headrace_parked_keys", subscription="orders") == 0
    assert value(metrics, "headrace_lag_seconds", subscription="orders") is None
    assert value(metrics, "headrace_horizon_held_seconds", subscription="orders") is None
    assert value(metrics, "headrace_backlog_events", subscription="mails") is None


def test_stale_gauges_vanish() -> None:
    """Unknown is not zero, and not yesterday's figure: without samples the gauges go, the counters stay."""
    clock = Clock()
    metrics = Metrics(clock)
    metrics.notice(Flushed("orders", 0, LeaseId(1), 40, 3, 0.01))
    metrics.show([Sample("orders", 5, 2, 1.5, 1, 0.0)])

    clock.now += SAMPLE_LIFE_SECONDS
    fresh, _ = metrics.render()
    clock.now += 1
    stale, _ = metrics.render()

    assert b'headrace_backlog_events{subscription="orders"} 5.0' in fresh
    assert b'headrace_backlog_events{subscription="orders"}' not in stale
    assert b'headrace_handled_total{outcome="handled",subscription="orders"} 40.0' in stale


def test_counters_start_at_zero() -> None:
    """A declared subscription shows its counters before anything happened: a rate needs the zero before the one."""
    metrics = Metrics()
    metrics.introduce(["orders"])

    assert b"_created" not in metrics.render()[0]
    assert value(metrics, "headrace_lease_lost_total", subscription="orders") == 0
    assert value(metrics, "headrace_handled_total", subscription="orders", outcome="parked") == 0


def test_an_observer_that_raises_hurts_nobody() -> None:
    """The engine and the other observers go on; the complaint comes once a minute, not once an event."""

    class Broken:
        def notice(self, event: EngineEvent) -> None:
            raise ZeroDivisionError

    clock = Clock()
    metrics = Metrics()
    fanout = Fanout([Broken(), metrics], clock)
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    logging.getLogger("headrace.telemetry").addHandler(handler)
    try:
        for _ in range(1000):
            fanout.notice(failed())
        clock.now += 61
        fanout.notice(failed())
    finally:
        logging.getLogger("headrace.telemetry").removeHandler(handler)

    assert value(metrics, "headrace_handled_total", subscription="orders", outcome="failed") == 1001
    assert fanout.errors == 1001
    assert heard.getvalue().count("ZeroDivisionError") == 2


def test_keys_that_fail_for_ever_do_not_flood() -> None:
    """E-L63: a hundred keys that fail again and again give a bounded number of lines, and the rest is counted."""
    clock, log = Clock(), CapturingLogger()
    observer = LogObserver(log, clock)
    for _ in range(20):
        for key in range(100):
            observer.notice(failed(f"key-{key}"))
        clock.now += WINDOW_SECONDS / 10

    left_out = [call.kwargs["lines"] for call in log.calls if call.args == ("similar lines were left out",)]
    assert len(log.calls) <= 2 * LINES_PER_WINDOW + len(left_out)
    assert left_out == [1000 - LINES_PER_WINDOW]


def test_one_subscription_does_not_silence_another() -> None:
    """The limit is per subscription and kind: a noisy one leaves the others heard."""
    log = CapturingLogger()
    observer = LogObserver(log, Clock())
    for _ in range(100):
        observer.notice(failed())
    observer.notice(failed(subscription="mails"))
    observer.notice(failed(state="parked", subscription="mails"))
    observer.notice(TookOver("orders", LeaseId(1), Run(1), "w", 3))

    assert [call.kwargs["subscription"] for call in log.calls[LINES_PER_WINDOW:]] == ["mails", "mails", "orders"]


def test_no_line_per_event_at_info() -> None:
    """OBS-1: handling writes at debug; at info a summary comes at most every 30 s."""
    clock, log = Clock(), CapturingLogger()
    observer = LogObserver(log, clock)
    for _ in range(61):
        observer.notice(Flushed("orders", 0, LeaseId(1), 10, 1, 0.01))
        clock.now += 1

    infos = [call for call in log.calls if call.method_name != "debug"]
    assert [call.kwargs["events"] for call in infos] == [310, 300]


def test_lines_name_subscription_and_bounded_partition(stream: io.StringIO) -> None:
    """Each line carries subscription and partition; a key of 1,000 characters or with controls is made safe."""
    configure_logging("json", "info", stream)
    LogObserver().notice(failed("a\x1b[31m\n" + "x" * 990))

    (line,) = lines(stream)
    assert (line["subscription"], line["position"], line["level"]) == ("orders", 7, "warning")
    assert line["partition"].startswith("a\\x1b[31m\\nxxx")
    assert len(line["partition"]) < 130


@pytest.mark.parametrize("form", ["json", "console"])
def test_passwords_are_never_logged(stream: io.StringIO, form: str) -> None:
    """A DSN's password is taken out of facts, of what users log, of arguments and of tracebacks."""
    configure_logging(form, "debug", stream)
    dsn = "postgresql://app:s3cret/@x@db:5432/shop"
    LogObserver().notice(failed(error=f"cannot connect to {dsn}"))
    logging.getLogger("users.own").warning("connecting to %s", dsn, extra={"target": dsn, "more": {"dsn": dsn}})
    logs.logger().info("host=db password=s3cret user=app", options=["password='s3cret'"])
    try:
        raise ConnectionError(dsn)
    except ConnectionError:
        logging.getLogger("users.own").exception("no luck")

    assert stream.getvalue().count("***") >= 6
    assert "s3cret" not in stream.getvalue()


def test_json_is_chosen_when_piped(stream: io.StringIO) -> None:
    """Without a format it is JSON for a pipe; users' own lines take the same form."""
    configure_logging(None, "info", stream)
    logging.getLogger("users.own").info("hello")
    LogObserver().notice(DatabaseFound(""))

    assert [(line["event"], line["level"]) for line in lines(stream)] == [
        ("hello", "info"),
        ("the database answers again", "info"),
    ]


def test_console_is_chosen_on_a_terminal(stream: io.StringIO) -> None:
    """On a terminal the same lines are for people."""
    stream.isatty = lambda: True  # type: ignore[method-assign]
    configure_logging(None, "info", stream)
    LogObserver().notice(DatabaseFound(""))

    assert "the database answers again" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_a_closed_log_is_survived(stream: io.StringIO) -> None:
    """When nobody reads the log any more, writing to it raises nothing."""
    configure_logging("json", "info", stream)
    stream.close()

    LogObserver().notice(DatabaseFound(""))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://u:p@h/d", "postgres://u:***@h/d"),
        ("postgresql://u:p/@w@h/d?x=1", "postgresql://u:***@h/d?x=1"),
        ("postgresql://user@host:5432/db", "postgresql://user@host:5432/db"),
        ("see https://example.org:80/a@b", "see https://example.org:80/a@b"),
        ("amqp://u:p@h", "amqp://u:***@h"),
        ("host=h password=p user=u", "host=h password=*** user=u"),
        ("PASSWORD = 'a b' x", "PASSWORD = *** x"),
    ],
)
def test_redaction(text: str, shown: str) -> None:
    """Passwords are recognised by their form, and nothing else of a text changes."""
    assert redacted(text) == shown


def test_lone_surrogates_can_be_shown() -> None:
    """A key with a lone surrogate (from a mapped table) is written out rather than breaking the line."""
    assert shown_key("a\ud800b").encode("utf-8") == b"a\\ud800b"
