"""Looks at the line of one event table: sequence value, holders, who they are.

Remembers nothing; the tracker does. Every look is one round trip in READ COMMITTED, and never part of
the statement that reads rows: a line and rows from one snapshot lose events.
"""

import asyncpg

from headrace.domain.horizon import Holder, HorizonProbe
from headrace.domain.ids import Position
from headrace.ports.horizon import HolderReport, SourceCheck
from headrace.store.mapping import EventTable
from headrace.store.pool import Database

CONTIGUOUS_ROWS = 10_000
"""So many rows one look for holes reads at most."""


class PostgresHorizon:
    """The source of one event table's horizon (port ``HorizonSource``)."""

    def __init__(self, database: Database, table: EventTable) -> None:
        self._database = database
        self._table = table

    async def probe(self) -> HorizonProbe:
        """Read the sequence, then list the holders; see the port."""
        async with self._database.session() as session:
            row = await session.fetchrow(session.queries.horizon_probe, self._table.sequence, self._table.relation)
        if row is None:
            raise RuntimeError("the horizon function returned no row")
        return HorizonProbe(
            sequence=Position(row["sequence"]),
            holders=tuple(Holder(vxid, pid) for vxid, pid in zip(row["vxids"] or (), row["pids"] or (), strict=True)),
            server=row["server"],
            problems=self._problems(row["cache"]),
        )

    async def contiguous_from(self, base: Position, upto: Position) -> Position:
        """Return how far rows follow ``base`` without a hole; see the port."""
        async with self._database.session() as session:
            query = session.queries.render("contiguous_from", events=self._table.events)
            found = await session.fetchval(query, base, upto, CONTIGUOUS_ROWS, self._table.step)
        return Position(found)

    async def describe(self, holder: Holder) -> HolderReport | None:
        """Return who a holder is, None when it is gone."""
        async with self._database.session() as session:
            row = await session.fetchrow(
                session.queries.horizon_holder, holder.vxid, self._table.sequence, self._table.relation
            )
        return None if row is None else _report(row)

    async def check(self) -> SourceCheck:
        """Tell whether the table can be read exactly, and what else should be known."""
        async with self._database.session() as session:
            row = await session.fetchrow(session.queries.horizon_settings, self._table.sequence)
        if row is None:
            raise RuntimeError("the settings query returned no row")
        notes = list(self._table.notes)
        if row["synchronous_commit"] == "off":
            notes.append(
                "synchronous_commit is off by default here: after a crash of the server, events that were read already "
                "can be gone and their positions come again; appends should set it to on"
            )
        if row["fsync"] == "off":
            notes.append("fsync is off here: a crash of the machine can lose or damage events")
        if not row["sees_all"]:
            notes.append(
                "this role lacks pg_read_all_stats: who holds back reading is shown by pid only; "
                "GRANT pg_read_all_stats to it shows application, state and age"
            )
        return SourceCheck(self._problems(row["cache"]), tuple(notes))

    async def stored_position(self) -> Position:
        """Return the highest position that a router of this table has stored; see the port."""
        async with self._database.session() as session:
            return Position(await session.fetchval(session.queries.stored_position, self._table.source))

    def _problems(self, cache: int | None) -> tuple[str, ...]:
        name = self._table.sequence_name
        if cache is None:
            return (f"the sequence {name} is gone: positions of {self._table.mapping.name} come from elsewhere now",)
        if cache > 1:
            fix = f"run `alter sequence {name} cache 1` and let every appending session connect again"
            why = "sessions keep positions in hand, so events can appear below what was read"
            return (f"the sequence {name} has CACHE {cache}: {why}; {fix}",)
        return ()


def _report(row: asyncpg.Record) -> HolderReport:
    return HolderReport(
        pid=row["pid"],
        gid=row["gid"],
        application=row["application"] or "",
        client=row["client"] or "",
        state=row["state"] or "",
        since=row["since"],
        age=row["age"],
    )
