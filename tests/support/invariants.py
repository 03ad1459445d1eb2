"""The last line of every scenario: whatever happened, the protocol's tables are as they must be."""

import importlib
import importlib.util

from headrace.store.pool import Database as Pool
from headrace.testing.invariants import broken_invariants as broken_in_memory
from support.databases import Database
from support.postgres_world import image_of


async def assert_sound(database: Database) -> None:
    """Assert that no invariant of the protocol is broken in a test's database; nobody may be at work there."""
    if importlib.util.find_spec("headrace.store.check") is None:
        async with database.connection() as connection:
            assert broken_in_memory(await image_of(connection)) == []
        return
    broken_invariants = importlib.import_module("headrace.store.check").broken_invariants
    async with await Pool.open(database.dsn, max_size=1) as pool, pool.session() as session:
        assert await broken_invariants(session) == []
