"""The last line of every scenario: whatever happened, the protocol's tables are as they must be."""

from headrace.store.check import broken_invariants
from headrace.store.pool import Database as Pool
from support.databases import Database


async def assert_sound(database: Database, schema: str = "headrace") -> None:
    """Assert that no invariant of the protocol is broken in a test's database."""
    async with await Pool.open(database.dsn, schema=schema, max_size=1) as pool, pool.session() as session:
        assert await broken_invariants(session) == []
