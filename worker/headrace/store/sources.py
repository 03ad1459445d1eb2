"""Event tables by what workers have stored of them, for commands that have no application and so no mapping.

Enough to read positions, types and streams and to look at the line. What a mapping says beyond that lives in the
application: nobody decodes an event by such a table. Never writes.
"""

from collections.abc import Sequence

import asyncpg

from headrace.domain.errors import UsageError
from headrace.domain.mapping import TableMapping
from headrace.store.mapping import EventTable
from headrace.store.pool import Session
from headrace.store.queries import Fragment


async def tables_of(session: Session, known: EventTable, names: Sequence[str]) -> dict[str, EventTable]:
    """Return the event table of each subscription that there is; ``known`` where it is the one.

    Raises:
        UsageError: a mapped table, or the sequence of its positions, is not there any more.

    """
    found: dict[str, EventTable] = {}
    by_source = {known.source: known}
    for row in await session.fetch(session.queries.sources_of, list(names)):
        source = row["source"]
        if source not in by_source:
            by_source[source] = _stored_table(session, row)
        found[row["name"]] = by_source[source]
    return found


async def table_of(session: Session, known: EventTable, name: str) -> EventTable:
    """Return the event table of one subscription, ``known`` when there is no such one; raises as ``tables_of``."""
    return (await tables_of(session, known, [name])).get(name, known)


def _stored_table(session: Session, row: asyncpg.Record) -> EventTable:
    if row["relation"] is None or row["sequence"] is None:
        raise UsageError(
            f"the event table {row['source']} of {row['name']}, or the sequence of its positions, is gone from this "
            "database: correct the mapping of the app, then run `headrace refresh`"
        )
    return EventTable(
        mapping=TableMapping(row["table_name"], row["table_schema"], exact=row["exact"]),
        # Built by a worker from a mapping that it had checked, as the statistics use it.
        events=Fragment(row["events_sql"]),
        data_size=session.queries.fragment("data_size"),
        relation=row["relation"],
        sequence=row["sequence"],
        sequence_name=row["sequence_name"],
        cache=row["cache"],
        step=row["step"],
        type_index=False,
    )
