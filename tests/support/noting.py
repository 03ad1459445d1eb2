"""A projector of any shape that writes down what it sees, and what it has written."""

from typing import Any

from headrace import Connection, Event, PartitionKey, RetryPolicy, Stream, Unrecoverable, on, projector, setup
from support.databases import Database
from support.scenes import rows

AT_ONCE = RetryPolicy(attempts=0, parked_attempts=0)
SEEN = "create table if not exists seen (place bigint generated always as identity, name text, key text, version int)"
NOTE = "insert into seen (name, key, version) values ($1, $2, $3)"


def noting(name: str, **declared: Any) -> Any:
    """Return a projector that writes down what it sees."""

    @projector(name, **{"partition_by": Stream(), "retry": AT_ONCE, **declared})
    class Noting:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(SEEN)

        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            if event.type == "Doomed":
                raise Unrecoverable("no")
            await db.execute(NOTE, name, key, event.version)

    return Noting()


async def versions(database: Database, name: str, key: str) -> list[int]:
    """Return the versions that a subscription has handled of a key, in the order of their effects."""
    found = await rows(database, "select version from seen where name = $1 and key = $2 order by place", name, key)
    return [row[0] for row in found]
