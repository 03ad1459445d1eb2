"""Subscribers of a role that may create nothing and finds nothing by its search path: every name has its schema.

What an event's data says is what happens to it: ``doom``, ``fail`` until a row is in ``public.fixed``, ``busy`` twice,
``wait`` for the gate, an advisory lock.
"""

from datetime import timedelta
from typing import Any

from headrace import App, Busy, Connection, Event, PartitionKey, RetryPolicy, Stream, Unrecoverable, on, projector

GATE = 11
POLICY = RetryPolicy(attempts=1, base=timedelta(milliseconds=10), jitter=0, parked_base=timedelta(hours=1))


@projector("keys", partition_by=Stream(), retry=POLICY, remove_idle_after=1)
class Keys:
    """One row per event of a key."""

    def __init__(self) -> None:
        self._was_busy = 0

    @on()
    async def see(self, event: Event[Any], key: PartitionKey, db: Connection) -> None:
        """Do what the event says, then note it."""
        if event.data.get("doom"):
            raise Unrecoverable("this event is doomed")
        if event.data.get("fail") and not await db.fetchval("select count(*) from public.fixed"):
            raise ValueError("not fixed yet")
        # The first time the event may be one of a group, which is then done key by key.
        if event.data.get("busy") and self._was_busy < 2:
            self._was_busy += 1
            raise Busy(timedelta(milliseconds=10))
        if event.data.get("wait"):
            await db.execute("select pg_advisory_xact_lock_shared($1)", GATE)
        await db.execute("insert into public.seen values ($1, $2)", key, event.version)


@projector("log")
class Log:
    """One row per event of the whole log."""

    @on()
    async def see(self, event: Event[Any], db: Connection) -> None:
        """Take one event."""
        await db.execute("insert into public.log values ($1)", event.position)


@projector("late", partition_by=Stream())
class Late:
    """Has not been set up before."""

    @on("Never")
    async def see(self, event: Event[Any]) -> None:
        """Is not called."""


app = App(Keys(), Log(), name="narrow")
late = App(Late(), name="late")
