"""Engine events and samples as Prometheus metrics, in a registry of their own.

The names are published. The only label taken from data is the subscription, so ten thousand keys give as many series
as ten. Gauges come from samples of the database; when samples stop they vanish, because unknown is not zero.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from headrace.domain.engine_events import (
    EngineEvent,
    EventsVanished,
    Flushed,
    Handled,
    KeyFailed,
    KeySlowed,
    LeaseWasLost,
    Routed,
    TookOver,
)
from headrace.domain.ids import LeaseId

SUBSCRIPTION = ("subscription",)
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SAMPLE_LIFE_SECONDS = 60.0
LEASES_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Sample:
    """What the database says of one subscription now; None where it does not know."""

    subscription: str
    backlog: int
    unrouted: int
    lag_seconds: float | None
    parked_keys: int
    horizon_held_seconds: float | None


class Metrics:
    """An observer that counts; safe from any thread. ``render`` is what /metrics answers."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self._monotonic = monotonic
        self._lock = Lock()
        self._lost: OrderedDict[LeaseId, None] = OrderedDict()
        self._sampled: set[str] = set()
        self._sampled_at = monotonic()
        self._gauges = self._make_gauges()
        self._handled = self._counter("headrace_handled", "Events by what came of them.", "subscription", "outcome")
        self._routed = self._counter("headrace_routed", "Events routed into inboxes.", *SUBSCRIPTION)
        self._lease_lost = self._counter(
            "headrace_lease_lost", "Leases that this worker found to be no longer its own.", *SUBSCRIPTION
        )
        self._took_over = self._counter(
            "headrace_lease_taken_over", "Expired leases that this worker took over.", *SUBSCRIPTION
        )
        self._handle = self._histogram("headrace_handle_seconds", "Time that the handlers of one claim group took.")
        self._flush = self._histogram("headrace_flush_seconds", "Time that one flush took.")

    def notice(self, event: EngineEvent) -> None:
        """Count one fact."""
        name = event.subscription
        match event:
            case Flushed():
                self._handled.labels(name, "handled").inc(event.events)
                self._flush.labels(name).observe(event.seconds)
            case Handled():
                self._handle.labels(name).observe(event.seconds)
            case Routed():
                self._routed.labels(name).inc(event.events)
            case KeyFailed():
                self._handled.labels(name, "failed" if event.state == "backing off" else "parked").inc()
            case KeySlowed():
                self._handled.labels(name, "slowed").inc()
            case EventsVanished():
                self._handled.labels(name, "vanished").inc(event.count)
            case LeaseWasLost():
                self._count_lost(event)
            case TookOver():
                self._took_over.labels(name).inc()
            case _:
                pass

    def show(self, samples: Iterable[Sample]) -> None:
        """Set the gauges from a fresh look at the database; subscriptions that are gone lose theirs."""
        with self._lock:
            fresh = {sample.subscription: sample for sample in samples}
            for name in self._sampled - fresh.keys():
                self._drop(name)
            for sample in fresh.values():
                self._set(sample)
            self._sampled = set(fresh)
            self._sampled_at = self._monotonic()

    def introduce(self, names: Iterable[str]) -> None:
        """Start the counters of these subscriptions at zero, so that a first increase can be seen as one."""
        for name in names:
            self._lease_lost.labels(name)
            self._took_over.labels(name)
            self._routed.labels(name)
            for outcome in ("handled", "failed", "parked"):
                self._handled.labels(name, outcome)

    def render(self) -> tuple[bytes, str]:
        """Return the text of all metrics and its content type."""
        with self._lock:
            if self._monotonic() - self._sampled_at > SAMPLE_LIFE_SECONDS:
                for name in self._sampled:
                    self._drop(name)
                self._sampled = set()
        return generate_latest(_WithoutCreated(self.registry)), CONTENT_TYPE_LATEST

    def _make_gauges(self) -> dict[str, Gauge]:
        help_of = {
            "backlog_events": "Events that could be worked on now: unrouted, and inboxed for keys that are due.",
            "unrouted_events": "Wanted events above the router's position, at or below the horizon.",
            "lag_seconds": "Age of the oldest event that is due and not handled.",
            "parked_keys": "Keys set aside after failures.",
            "horizon_held_seconds": "For how long an open append has held the line; 0 when none does.",
        }
        return {
            name: Gauge(f"headrace_{name}", text, SUBSCRIPTION, registry=self.registry)
            for name, text in help_of.items()
        }

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, SUBSCRIPTION, buckets=SECONDS, registry=self.registry)

    def _count_lost(self, event: LeaseWasLost) -> None:
        # Renewal, fence and session may each find the same loss.
        with self._lock:
            if event.lease in self._lost:
                return
            self._lost[event.lease] = None
            if len(self._lost) > LEASES_REMEMBERED:
                self._lost.popitem(last=False)
        self._lease_lost.labels(event.subscription).inc()

    def _set(self, sample: Sample) -> None:
        values: dict[str, float | None] = {
            "backlog_events": sample.backlog,
            "unrouted_events": sample.unrouted,
            "lag_seconds": sample.lag_seconds,
            "parked_keys": sample.parked_keys,
            "horizon_held_seconds": sample.horizon_held_seconds,
        }
        for gauge, value in values.items():
            if value is None:
                _remove(self._gauges[gauge], sample.subscription)
            else:
                self._gauges[gauge].labels(sample.subscription).set(value)

    def _drop(self, name: str) -> None:
        for gauge in self._gauges.values():
            _remove(gauge, name)


class _WithoutCreated(Collector):
    """A registry's metrics without the birth time of each series, which doubles the page and says nothing here."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


def _remove(gauge: Gauge, name: str) -> None:
    try:
        gauge.remove(name)
    except KeyError:
        return
