"""An unpartitioned subscription goes through a long log without a rest between its batches."""

import asyncio
from typing import Any

from headrace import App, Event, batch, projector
from support.bulk import append_many
from support.databases import Database
from support.scenes import options
from support.statements import Statements

EVENTS, LIMIT = 2_000, 50
BATCHES = EVENTS // LIMIT


@projector("slices", partition_by=None, limit=LIMIT)
class Slices:
    """Takes the log in slices."""

    @batch()
    async def take(self, events: list[Event[Any]]) -> None:
        """Take a slice."""


async def test_it_goes_on_without_being_told(database: Database) -> None:
    """40 batches: the look for due work, which waits up to half a second, is not what starts each of them."""
    await append_many(database, EVENTS, 10)
    heard = Statements()
    async with App(Slices(), name="pace").engine(database.dsn, heard.heard_by(options())) as engine:
        result = await engine.serve(asyncio.Event(), until_caught_up=True, timeout=120)

    assert result.processed == EVENTS
    assert heard.sent["load_log_head"] >= BATCHES
    # Each look that found something was a batch that had stood still until then.
    assert heard.sent["due_runs"] < BATCHES / 2
