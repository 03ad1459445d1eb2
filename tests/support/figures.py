"""The published statistics as a dashboard reads them."""

from types import SimpleNamespace
from typing import Any

from headrace.store.pool import Database


async def stats(database: Database, names: list[str] | None = None) -> list[Any]:
    """Return the rows of `stats_v1`, or those of some subscriptions, with a field for each column."""
    async with database.session() as session:
        rows = await session.fetch("select * from headrace.stats_of_v1($1::text[])", names)
    return [SimpleNamespace(**dict(row)) for row in rows]
