"""Which way a batch of wanted events is read, and when to change it.

Few wanted types are found by the index on (type, position), so that rare ones cost nothing; but when
they are most of the log, reading in the order of positions is several times cheaper. The last batch
of a run tells which it is. Either way one statement looks at a bounded number of rows. Never decides
what is read, only how.
"""

from dataclasses import dataclass, field

import asyncpg

from headrace.domain.event import EventFilter
from headrace.domain.ids import Position, Run
from headrace.store.mapping import EventTable
from headrace.store.pool import Session
from headrace.store.queries import Fragment, Queries

FEW_TYPES = 32
"""Up to so many wanted types are looked for one by one."""

WINDOW_ROWS = 20_000
"""So many rows one statement looks at when it must filter them."""

DENSE = 4
"""Reading in order is the cheaper form while less than so many positions lie behind each wanted event."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read: the fragments of the statement, and how many rows it looks at."""

    batch: Fragment
    stop: Fragment
    last_row: Fragment
    window: int
    by_type: bool


def arrays(wanted: EventFilter) -> tuple[list[str] | None, list[str] | None, list[str] | None]:
    """Return the parameters for types, streams and tags."""
    # A type named twice would be read twice.
    types = None if wanted.types is None else sorted(set(wanted.types))
    streams = None if wanted.streams is None else list(wanted.streams)
    return types, streams, None if wanted.tags is None else list(wanted.tags)


@dataclass(slots=True)
class BatchReader:
    """Reads batches of one event table, in the form that suits each run by what its last batch has shown."""

    queries: Queries
    table: EventTable
    _dense: dict[Run, bool] = field(default_factory=dict)

    def head(self, name: str) -> str:
        """Return a statement that opens a reading transaction, by name: it forbids plans that sort the log."""
        return self.queries.render(name, ordered_reading=self.queries.fragment("ordered_reading"))

    async def read(
        self,
        session: Session,
        run: Run,
        after: Position,
        upto: Position,
        wanted: EventFilter,
        limit: int,
        max_bytes: int,
    ) -> list[asyncpg.Record]:
        """Return one row per event with ``last_row`` and ``complete``; one row without a position when there is none.

        The session must be in a transaction that a statement of ``head`` has opened.
        """
        reading = self.reading(run, wanted, limit + 1, "upto_horizon")
        query = self.queries.render(
            "read_batch",
            batch=reading.batch,
            stop=reading.stop,
            last_row=reading.last_row,
            data_size=self.table.data_size,
        )
        rows = await session.fetch(
            query, run, after, upto, limit + 1, *arrays(wanted), reading.window, max(max_bytes, 1)
        )
        found = sum(row["position"] is not None for row in rows)
        self.learn(run, reading, wanted, found, limit, rows[0]["last_row"] - after)
        return rows

    def reading(self, run: Run, wanted: EventFilter, limit: int, upto: str) -> Reading:
        """Return how to read the next batch; ``upto`` names the fragment of the line."""
        line = self.queries.fragment(upto)
        by_type = self._may_be_by_type(wanted) and not self._dense.get(run, False)
        batch, stop = ("batch_by_type", "stop_by_type") if by_type else ("batch_scan", "stop_scan")
        fragments = {"events": self.table.events, "upto": line}
        filters = any(given is not None for given in (wanted.types, wanted.streams, wanted.tags))
        return Reading(
            batch=self.queries.fragment(batch, **fragments),
            stop=self.queries.fragment(stop, **({} if by_type else fragments)),
            last_row=self.queries.fragment("last_row", **fragments),
            window=max(WINDOW_ROWS, limit) if filters else limit,
            by_type=by_type,
        )

    def learn(self, run: Run, reading: Reading, wanted: EventFilter, found: int, limit: int, span: int) -> None:
        """Take in what a batch came to: events found, and how many positions it went over."""
        if self._may_be_by_type(wanted) and (found >= limit or not reading.by_type):
            self._dense[run] = span < DENSE * max(found, 1)

    def _may_be_by_type(self, wanted: EventFilter) -> bool:
        return (
            self.table.type_index
            and wanted.types is not None
            and len(wanted.types) <= FEW_TYPES
            and wanted.streams is None
            and wanted.tags is None
        )
