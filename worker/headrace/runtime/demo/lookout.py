"""Looks at the running demonstration: one small statement a look, and how fast it goes from look to look."""

import json
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from headrace.runtime.demo.crew import Crew
from headrace.runtime.demo.figures import FailingKey, Figures, SubscriptionFigures
from headrace.runtime.demo.plot import Plot
from headrace.runtime.demo.statements import statement
from headrace.store.pool import Session

RATE_SECONDS = 3.0
"""Over so long a time the speed is the mean: shorter, and the figure jumps from flush to flush."""


class Lookout:
    """One pair of eyes on a database of the demonstration."""

    def __init__(self, plot: Plot, crew: Crew, began: float) -> None:
        """Take what is played, by whom, and when it began by the monotonic clock."""
        self._plot = plot
        self._crew = crew
        self._began = began
        self._past: deque[tuple[float, int]] = deque(maxlen=100)
        self.imported = 0

    @property
    def at(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def blind(self) -> Figures:
        """Return what is known without a database."""
        return Figures(self.at, self._plot.subject, self._plot.events, self.imported, wanted=len(self._plot.kinds))

    async def look(self, session: Session) -> Figures:
        """Return the figures of this moment."""
        row = await session.fetchrow(statement("look"))
        found: dict[str, list[dict[str, Any]]] = {}
        if row is not None:
            found = {name: json.loads(text) if text else [] for name, text in row.items()}
        self._crew.check()
        leases = {_pid(held.pop("worker")): held for held in found["leases"]}
        beats = {_pid(worker["name"]): worker["beat_seconds"] for worker in found["workers"]}
        subscriptions = tuple(self._subscription(row) for row in found["subscriptions"])
        return Figures(
            at=self.at,
            subject=self._plot.subject,
            events=self._plot.events,
            imported=self.imported,
            rate=self._rate(sum(one.handled for one in subscriptions)),
            subscriptions=subscriptions,
            workers=self._crew.figures(leases, beats),
            failing=tuple(_failing(row) for row in found["failing"]),
            wanted=len(self._plot.kinds),
        )

    def _subscription(self, row: Mapping[str, Any]) -> SubscriptionFigures:
        return SubscriptionFigures(
            name=row["subscription"],
            kind=self._plot.kinds.get(row["subscription"], ""),
            status=row["status"],
            unrouted=row["unrouted"] + row["held"],
            inbox=row["inboxed"] + row["waiting"],
            behind=row["waiting"],
            in_flight=row["in_flight"],
            lag=row["oldest_seconds"],
            partitions=row["pending_partitions"],
            parked=row["parked"],
            handled=row["processed_total"],
        )

    def _rate(self, handled: int) -> float:
        now = self.at
        while self._past and now - self._past[0][0] > RATE_SECONDS:
            self._past.popleft()
        self._past.append((now, handled))
        since, before = self._past[0]
        return max(handled - before, 0) / (now - since) if now - since > RATE_SECONDS / 10 else 0.0


def _failing(row: Mapping[str, Any]) -> FailingKey:
    error = row["error_type"].rpartition(".")[2]
    return FailingKey(
        row["subscription"], row["key"], row["position"], row["state"], error, max(row["waiting"] or 0, 0)
    )


def _pid(worker: str) -> str:
    return worker.rpartition(":")[2]
