"""What the horizon service asks of a database.

A source looks; it remembers nothing and decides nothing.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from headrace.domain.horizon import Holder, HorizonProbe
from headrace.domain.ids import Position


@dataclass(frozen=True, slots=True)
class HolderReport:
    """Who holds the line, for people. ``gid`` names a prepared transaction, which has no pid.

    ``since`` is the start of its transaction by the database's clock, ``age`` the same in seconds;
    None where this role may not see it (it lacks pg_read_all_stats).
    """

    pid: int | None
    gid: str | None
    application: str
    client: str
    state: str
    since: datetime | None
    age: float | None

    def __str__(self) -> str:
        """Name the holder in one line."""
        if self.pid is None:
            who = f"prepared transaction {self.gid!r}" if self.gid else "a prepared transaction"
            return f"{who}{_since(self.since)}: COMMIT PREPARED or ROLLBACK PREPARED ends it"
        about = ", ".join(filter(None, (self.application, self.client, self.state)))
        return f"pid {self.pid}{f' ({about})' if about else ''}{_since(self.since)}"


def _since(since: datetime | None) -> str:
    return "" if since is None else f" since {since:%Y-%m-%d %H:%M:%S%z}"


@dataclass(frozen=True, slots=True)
class SourceCheck:
    """What a source found at its start: problems forbid exact reading, notes are worth showing."""

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class HorizonSource(Protocol):
    """One event table in one database."""

    async def probe(self) -> HorizonProbe:
        """Read the sequence, then list the holders; one round trip.

        Raises:
            NotExact: the server is a standby, or the transaction is not READ COMMITTED.
            Unavailable: the database cannot be reached.

        """
        ...

    async def contiguous_from(self, base: Position, upto: Position) -> Position:
        """Return how far rows follow ``base`` without a hole, not beyond ``upto``; looks at a bounded number."""
        ...

    async def describe(self, holder: Holder) -> HolderReport | None:
        """Return who a holder is, None when it is gone."""
        ...

    async def check(self) -> SourceCheck:
        """Tell whether the table can be read exactly, and what else should be known."""
        ...

    async def stored_position(self) -> Position:
        """Return the highest position that a reader of this table has stored, START when there is none.

        Everything at or below it was final when it was stored.
        """
        ...
