"""The application of the command line's tests: what an event's data says is what happens to it.

``{"fail": true}`` raises until the row ``fixed`` is there, ``{"doom": true}`` parks at once, ``{"await": seconds}``
waits on the loop, ``{"block": seconds}`` blocks it.
"""

import asyncio
import sys
import threading
from datetime import timedelta
from typing import Any

from headrace import App, Connection, Event, PartitionKey, RetryPolicy, Stream, Unrecoverable, on, projector, setup

POLICY = RetryPolicy(attempts=1, base=timedelta(milliseconds=10), jitter=0, parked_base=timedelta(hours=1))
CREATE = """
    create table if not exists seen (key text, version int, primary key (key, version));
    create table if not exists started (key text, version int);
    create table if not exists fixed ();
"""


@projector("orders", partition_by=Stream(), retry=POLICY, timeout=20, group="shop")
class Orders:
    """One row per event."""

    @setup
    async def create(self, db: Connection) -> None:
        """Create the read model; what the handlers write counts once however often setup runs."""
        await db.execute(CREATE)

    @on()
    async def see(self, event: Event[Any], key: PartitionKey, db: Connection) -> None:
        """Do what the event says, then note it."""
        if event.data.get("doom"):
            raise Unrecoverable("this event is doomed\nand says so in two lines")
        if event.data.get("fail") and not await db.fetchval("select count(*) from fixed"):
            raise ValueError("the read model is not fixed yet")
        if seconds := event.data.get("await"):
            sys.stdout.write("awaiting\n")
            sys.stdout.flush()
            await wait_on_loop(seconds)
        if seconds := event.data.get("block"):
            sys.stdout.write("blocking\n")
            sys.stdout.flush()
            threading.Event().wait(seconds)
        await db.execute("insert into seen values ($1, $2)", str(key), event.version)


@projector("totals", group="sums")
class Totals:
    """The whole log, in order."""

    @on("Never")
    async def never(self, event: Event[Any]) -> None:
        """Is not called."""


async def wait_on_loop(seconds: float) -> None:
    """Let the loop run for so long."""
    try:
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()
    except TimeoutError:
        return


app = App(Orders(), Totals(), name="cli_shop")
other = App(Orders(), name="somebody_else")
not_an_app = 7
