"""Subscribers for a log of which nothing is known but that it is one: counts by stream, by day, by type, and notices.

They are as different as those of the shop: by stream one event after the other, by a key that a function of the user
makes in batches, the whole log in its order, and a reactor whose handlers wait.
"""

from collections import Counter
from datetime import UTC
from typing import Any

from headrace.domain.event import Event
from headrace.domain.ids import PartitionKey
from headrace.partitioning.keys import Stream
from headrace.ports.connection import Connection
from headrace.runtime.app import App
from headrace.runtime.demo.plot import read_notes
from headrace.runtime.demo.statements import statement
from headrace.runtime.demo.subscribers import MAILS_AT_ONCE, QUICK, has_fix, send_mail
from headrace.subscribers.declare import batch, on, projector, reactor, setup

NOTES = read_notes()


class StumbledError(Exception):
    """What release 1 does at one event, so that there is something to see."""


class Day:
    """The key of an event is the day on which it was recorded, in UTC."""

    def key(self, event: Event[Any]) -> str | None:
        """Return the day as 2026-03-01."""
        return None if event.recorded_at is None else event.recorded_at.astimezone(UTC).date().isoformat()


@projector("by_stream", partition_by=Stream(), retry=QUICK)
class ByStream:
    """One row per stream."""

    @setup
    async def create(self, db: Connection) -> None:
        """Create the read model."""
        await db.execute(statement("create_by_stream"))

    @on()
    async def count(self, event: Event[Any], key: PartitionKey, db: Connection) -> None:
        """Count the event."""
        if not has_fix() and (event.stream, event.version) == (NOTES.stream, NOTES.version):
            raise StumbledError(f"release 1 cannot handle version {event.version} of this stream")
        db.defer(statement("count_stream"), str(key), event.version)


@projector("by_day", partition_by=Day())
class ByDay:
    """One row per day and type, a batch of events at a time."""

    @setup
    async def create(self, db: Connection) -> None:
        """Create the read model."""
        await db.execute(statement("create_by_day"))

    @batch()
    async def fold(self, events: list[Event[Any]], db: Connection) -> None:
        """Add the batch up, then write each day and type once."""
        counts = Counter((str(event.key), event.type) for event in events)
        await db.executemany(statement("count_day"), [(*which, number) for which, number in sorted(counts.items())])


@projector("by_type")
class ByType:
    """One row per type, from the whole log in its one order."""

    @setup
    async def create(self, db: Connection) -> None:
        """Create the read model."""
        await db.execute(statement("create_by_type"))

    @batch()
    async def fold(self, events: list[Event[Any]], db: Connection) -> None:
        """Add up; the first and the last position of a type show whether the order was kept."""
        found: dict[str, list[int]] = {}
        for event in events:
            row = found.setdefault(event.type, [0, event.position, 0])
            row[0] += 1
            row[2] = event.position
        await db.executemany(statement("count_type"), [(type_, *row) for type_, row in sorted(found.items())])


@reactor("notices", partition_by=Stream(), start="beginning", concurrency=MAILS_AT_ONCE)
class Notices:
    """A side effect for each event of one type that comes now and then."""

    @on(NOTES.mailed or "Nothing")
    async def send(self, event: Event[Any]) -> None:
        """Send the notice."""
        await send_mail(event)


app = App(ByStream(), ByDay(), ByType(), Notices(), name="demo")
