"""What handlers left behind in a scenario: the table of their effects, and the ledger of what failed."""

from typing import Any

from headrace import RetryPolicy
from support.databases import Database
from support.scenes import rows

SEEN = "create table if not exists seen (place bigint generated always as identity, key text, version int)"
NOTE = "insert into seen (key, version) values ($1, $2)"
AT_ONCE = RetryPolicy(attempts=0, parked_attempts=0)
"""No retry: a key that fails waits for a person."""


async def seen(database: Database, key: str) -> list[int]:
    """Return the versions of a key that have an effect, in the order of the effects."""
    return [row[0] for row in await rows(database, "select version from seen where key = $1 order by place", key)]


async def ledger(database: Database) -> list[tuple[Any, ...]]:
    """Return the failures: key, version of the failing event, state, attempts."""
    return await rows(
        database,
        "select p.key, e.version, f.state, f.attempts from headrace.failures f"
        " join headrace.partitions p on p.id = f.part join headrace.events e on e.position = f.position order by 1",
    )
