"""The same random commands, step by step, in memory and in PostgreSQL."""

import pytest

from support.databases import Database
from support.walk import Walk
from support.worlds import MemoryWorld

ALONE_SEEDS = 40
ALONE_STEPS = 400
TOGETHER_SEEDS = range(1, 5)
TOGETHER_STEPS = 250


async def test_twin_keeps_the_invariants() -> None:
    """Whatever commands come in whatever order, the tables in memory never break an invariant."""
    tally: dict[str, int] = {}
    for seed in range(ALONE_SEEDS):
        walk = Walk([MemoryWorld()], seed)
        await walk.run(ALONE_STEPS)
        tally = {name: tally.get(name, 0) + count for name, count in walk.tally.items()}
    assert min(tally.values()) > 0


@pytest.mark.parametrize("seed", TOGETHER_SEEDS)
async def test_both_take_the_same_walk(world_database: Database, seed: int, scale: float) -> None:
    """After every step both have answered or refused the same, show the same rows and keep all invariants."""
    from support.postgres_world import postgres_world

    async with postgres_world(world_database) as other:
        await Walk([MemoryWorld(), other], seed).run(round(TOGETHER_STEPS * max(1.0, scale * 10)))
