"""Subscribers that stand still in the middle of an event while a test holds the gate: an advisory lock."""

import os

from headrace import App, Connection, Event, Stream, on, projector, reactor, setup

GATE = 7
"""Whoever holds this lock exclusively keeps handlers waiting."""
PASS = "select pg_advisory_xact_lock_shared($1)"
TABLE = "create table if not exists effects (id bigint generated always as identity, position bigint, pid int)"
EFFECT = "insert into effects (position, pid) values ($1, $2)"


@projector("inside", partition_by=Stream())
class Inside:
    """Waits inside the transaction that flushes it."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model."""
        await db.execute(TABLE)

    @on()
    async def act(self, event: Event, db: Connection) -> None:
        """Write, then wait."""
        await db.execute(EFFECT, event.position, os.getpid())
        await db.execute(PASS, GATE)


@reactor("outside", partition_by=Stream(), start="beginning")
class Outside:
    """Waits without any transaction of the engine."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the table of effects."""
        await db.execute(TABLE)

    @on()
    async def act(self, event: Event, db: Connection) -> None:
        """Have an effect, then wait."""
        await db.execute(EFFECT, event.position, os.getpid())
        await db.execute(PASS, GATE)


inside = App(Inside(), name="inside")
outside = App(Outside(), name="outside")
