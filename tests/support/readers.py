"""Readers for tests: the exact one as the engine reads, and the naive one that everybody writes first."""

from dataclasses import dataclass, field
from typing import Any

from headrace.domain.horizon import Horizon
from headrace.domain.ids import START, Position
from headrace.engine.horizon import HorizonService
from headrace.runtime.system import SystemClock
from headrace.store.events import PostgresEvents
from headrace.store.horizon import PostgresHorizon
from headrace.store.mapping import EventTable
from headrace.store.pool import Database

Seen = tuple[int, str, int]
"""Position, stream, version."""


class StoringHorizon(PostgresHorizon):
    """The source of a reader that stores its position somewhere: here, in itself."""

    stored = START

    async def stored_position(self) -> Position:
        """Return what the reader has stored."""
        return self.stored


@dataclass
class ExactReader:
    """Reads up to the line, and goes on from the last row at or below it."""

    events: PostgresEvents
    source: StoringHorizon
    service: HorizonService
    position: Position = START
    seen: list[Seen] = field(default_factory=list)

    @classmethod
    def of(cls, database: Database, table: EventTable, exact: bool = True) -> "ExactReader":
        """Return a reader with a horizon service of its own."""
        source = StoringHorizon(database, table)
        return cls(PostgresEvents(database, table), source, HorizonService(source, SystemClock(), exact=exact))

    def restart(self) -> None:
        """Forget everything but the stored position, as a new process does."""
        self.service = HorizonService(self.source, SystemClock())

    async def read_on(self, limit: int = 500) -> Horizon:
        """Take the line, read everything at or below it, return the line."""
        horizon = await self.service.refresh()
        more = True
        while more:
            page = await self.events.read(self.position, horizon.line, limit=limit)
            self.seen += [(event.position, event.stream, event.version) for event in page.events]
            self.position, more = page.last, page.more
            self.source.stored = self.position
        return horizon


@dataclass
class NaiveReader:
    """Reads whatever it sees above the last position it saw."""

    database: Database
    position: int = 0
    seen: list[Seen] = field(default_factory=list)

    async def read_on(self) -> None:
        """Read one page of what is visible now."""
        async with self.database.session() as session:
            rows: Any = await session.fetch(
                "select position, stream, version from headrace.events where position > $1 order by position limit 500",
                self.position,
            )
        if rows:
            self.seen += [tuple(row) for row in rows]
            self.position = rows[-1]["position"]


async def stored_events(database: Database, table: str = "headrace.events") -> list[Seen]:
    """Return everything that is committed, in the order of positions."""
    async with database.session() as session:
        rows = await session.fetch(f"select position, stream, version from {table} order by position")
        return [(row["position"], row["stream"], row["version"]) for row in rows]


def assert_complete(seen: list[Seen], stored: list[Seen]) -> None:
    """Assert that a reader saw every stored event once, by rising position, and versions 1, 2, 3, … of each stream."""
    positions = [position for position, _, _ in seen]
    assert positions == sorted(set(positions)), "read twice, or out of order"
    missed = sorted(set(stored) - set(seen))
    assert not missed, f"missed {len(missed)} of {len(stored)} events, the first is {missed[0]}"
    assert seen == stored, "read what is not stored"
    versions: dict[str, int] = {}
    for _, stream, version in seen:
        assert version == versions.get(stream, 0) + 1, f"{stream} jumped from {versions.get(stream, 0)} to {version}"
        versions[stream] = version
