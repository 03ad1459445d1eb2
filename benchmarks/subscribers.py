"""The subscribers that are measured, written as a user would write them."""

import asyncio
import os
from typing import Any

from benchmarks.queries import queries_of
from headrace.domain.event import Event
from headrace.partitioning.keys import Stream
from headrace.ports.connection import Connection
from headrace.subscribers.app import App
from headrace.subscribers.declare import batch, on, projector

ADD_TOTALS = queries_of("projection")["add_totals"]
AWAITED_SECONDS = float(os.environ.get("BENCHMARK_AWAITED_SECONDS", "0.2"))


@projector("totals", partition_by=Stream())
class Totals:
    """Folds a group per key and writes it with one statement."""

    @batch()
    async def fold(self, events: list[Event[Any]], db: Connection) -> None:
        """Add the events of a group to the totals."""
        totals: dict[str, list[int]] = {}
        for event in events:
            total = totals.get(event.stream)
            amount = event.data["amount"]
            if total is None:
                totals[event.stream] = [1, amount, event.position]
            else:
                total[0] += 1
                total[1] += amount
                total[2] = event.position
        counts, amounts, last = zip(*totals.values(), strict=True)
        await db.execute(ADD_TOTALS, list(totals), counts, amounts, last)


HANDLED: list[int] = []
"""Positions that `NotedTotals` has handled since the observer looked; with one lane, those of one flush."""


@projector("noted_totals", partition_by=Stream())
class NotedTotals:
    """The same, noting what it has handled."""

    @batch()
    async def fold(self, events: list[Event[Any]], db: Connection) -> None:
        """Add the events of a group to the totals."""
        await Totals().fold(events, db)
        HANDLED.extend(event.position for event in events)


@projector("slow_totals", partition_by=Stream())
class SlowTotals:
    """Waits for something outside before each event, as handlers that call a service do."""

    @on()
    async def add(self, event: Event[Any], db: Connection) -> None:
        """Wait, then add one event."""
        await asyncio.sleep(AWAITED_SECONDS)
        await db.execute(ADD_TOTALS, [event.stream], [1], [event.data["amount"]], [event.position])


@projector("other_types", partition_by=Stream())
class OtherTypes:
    """Wants events that nobody appends: its worker only reads."""

    @on("Neverhappened")
    async def add(self, event: Event[Any]) -> None:
        """Never called."""
        raise AssertionError(event)


APPS = {
    "totals": App(Totals(), name="benchmark"),
    "noted": App(NotedTotals(), name="benchmark"),
    "slow": App(SlowTotals(), name="benchmark"),
    "other": App(OtherTypes(), name="benchmark"),
}
