"""Subscribers for outages: what they leave behind shows every lost, doubled or reordered event.

``exact`` and ``batched`` write in the transaction of their position; ``effects`` leaves traces that nothing undoes.
"""

import os
from typing import Any

from headrace import App, Connection, Event, PartitionKey, Stream, batch, on, projector, reactor, setup
from support.waiting import block_for, work_for


@projector("exact", partition_by=Stream())
class Exact:
    """One row per event, refused out of order; nobody else may be at the same key meanwhile."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model."""
        await db.execute("create table if not exists exact (key text, version int, primary key (key, version))")

    @on()
    async def see(self, event: Event[Any], key: PartitionKey, db: Connection) -> None:
        """Take one event."""
        if not await db.fetchval("select pg_try_advisory_xact_lock(1, hashtext($1))", key):
            raise AssertionError(f"two are at {key} at once")
        done = await db.execute(
            "insert into exact select $1::text, $2 where $2 = 1"
            " or exists (select from exact where key = $1 and version = $2 - 1)",
            key,
            event.version,
        )
        if done != "INSERT 0 1":
            raise AssertionError(f"{key} is not at version {event.version - 1}")


@projector("batched", partition_by=Stream())
class Batched:
    """The sum of versions of each stream, by batches over many keys."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model."""
        await db.execute(
            "create table if not exists batched (key text primary key, events int not null, last int not null)"
        )

    @batch()
    async def fold(self, events: list[Event[Any]], db: Connection) -> None:
        """Take all that waits; versions must follow one another."""
        found: dict[str, list[int]] = {}
        for event in events:
            found.setdefault(str(event.key), []).append(event.version)
        for key, versions in found.items():
            done = await db.execute(
                "insert into batched as b values ($1, $2, $3)"
                " on conflict (key) do update set events = b.events + $2, last = $3 where b.last = $4",
                key,
                len(versions),
                versions[-1],
                versions[0] - 1,
            )
            if done != "INSERT 0 1" or versions != list(range(versions[0], versions[-1] + 1)):
                raise AssertionError(f"{key} cannot go on with {versions}")


@reactor("effects", partition_by=Stream(), start="beginning")
class Effects:
    """A trace per call, in a transaction of its own, with who left it; slow where the data says so."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the table of traces."""
        await db.execute(
            "create table if not exists effects (id bigint generated always as identity, key text, version int,"
            " pid int, at timestamptz default clock_timestamp())"
        )

    @on()
    async def act(self, event: Event[Any], key: PartitionKey, db: Connection) -> None:
        """Leave a trace, then take some time."""
        await db.execute("insert into effects (key, version, pid) values ($1, $2, $3)", key, event.version, os.getpid())
        if seconds := event.data.get("seconds"):
            await work_for(seconds)


@projector("stubborn", partition_by=Stream(), timeout=300)
class Stubborn:
    """A plain function that blocks its thread for longer than anybody waits."""

    @setup
    def create(self, db: Connection) -> None:
        """Make the read model."""
        db.execute("create table if not exists stubborn (key text)")  # type: ignore[unused-coroutine]

    @on()
    def block(self, event: Event[Any], key: PartitionKey, db: Connection) -> None:
        """Block."""
        print("blocking", flush=True)  # noqa: T201 - the test waits for it
        block_for(event.data.get("seconds", 0))
        db.execute("insert into stubborn values ($1)", key)  # type: ignore[unused-coroutine]


app = App(Exact(), Batched(), Effects(), name="enduring")
folding = App(Batched(), name="folding")
acting = App(Effects(), name="acting")
stubborn = App(Stubborn(), name="stubborn")
