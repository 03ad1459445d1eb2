"""A rolling update: two versions of an app at work at once, the newer one with more event types."""

from typing import Any

import pytest

from headrace import App, Connection, Event, PartitionKey, Stream, on, projector, setup
from headrace.domain.engine_events import StoodBack, TookCharge
from headrace.partitioning.keys import Partitioner
from support.databases import Database
from support.invariants import assert_sound
from support.scenes import append, opened, options, rows, serving, until_caught_up, until_value

QUICK = options(lease_seconds=2, poll_max=0.1, beat_seconds=0.3)
TABLE = (
    "create table if not exists seen (name text, key text, position bigint, version text, primary key (name, position))"
)


class Python:
    """A partitioner that only Python can apply."""

    def key(self, event: Event[Any]) -> str:
        """Return the stream."""
        return event.stream


async def note(db: Connection, name: str, key: str, event: Event[Any], version: str) -> None:
    """Write one handled event down."""
    await db.execute("insert into seen values ($1, $2, $3, $4)", name, key, event.position, version)


def declared(version: str, name: str, key: Partitioner | None, types: tuple[str, ...]) -> object:
    """Return a subscriber in one version of it."""

    @projector(name, partition_by=key)
    class Subscriber:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(TABLE)

        @on(*types)
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await note(db, name, key, event, version)

    return Subscriber()


def app_of(version: str, *types: str) -> App:
    """Return an app with a subscription that the server routes, one that Python routes, and one over the whole log."""
    keys: list[tuple[str, Partitioner | None]] = [("pushed", Stream()), ("python", Python()), ("whole", None)]
    return App(*(declared(version, name, key, types) for name, key in keys), name="shop")


OLD, NEW = app_of("old", "A"), app_of("new", "A", "B")
NAMES = ["pushed", "python", "whole"]


async def seen_of(database: Database, kind: str) -> dict[str, set[int]]:
    """Return by subscription the positions of one event type that were handled."""
    found = await rows(
        database,
        "select s.name, s.position from seen s join headrace.events e using (position) where e.type = $1",
        kind,
    )
    return {name: {position for n, position in found if n == name} for name in NAMES}


def same(positions: set[int]) -> dict[str, set[int]]:
    """Return the same positions for every subscription."""
    return dict.fromkeys(NAMES, positions)


@pytest.mark.timeout(120)
async def test_no_event_of_a_new_type_is_lost(database: Database) -> None:
    """While workers of both versions run, every event of the type that only the newer one wants is handled by it, in
    all three kinds of routing; the older one says that it stands back, and a restart of it changes nothing.
    """
    async with serving(OLD, database, QUICK) as old:
        await append(database, *[(f"k{n % 5}", "A", {}) for n in range(20)])
        await until_caught_up(old, NAMES)
        async with serving(NEW, database, QUICK) as new:
            await until_value(
                database, "select count(*) from headrace.subscriptions where cardinality(declarations) = 2", 3
            )
            wanted: set[int] = set()
            for number in range(40):
                first, _ = await append(database, (f"k{number % 5}", "B", {}), (f"k{number % 5}", "A", {}))
                wanted.add(first)
                if number == 20:
                    async with serving(OLD, database, QUICK) as again:
                        await again.saw(StoodBack, subscription="pushed")
                        wanted |= set(await append(database, ("k1", "B", {})))
            for name in NAMES:
                await old.saw(StoodBack, subscription=name)
            await until_caught_up(new, NAMES)
        assert await seen_of(database, "B") == same(wanted)
        by = "select distinct seen.version from seen join headrace.events e using (position) where e.type = 'B'"
        assert await rows(database, by) == [("new",)]
    await assert_sound(database)


@pytest.mark.timeout(120)
async def test_old_version_takes_charge_when_the_new_one_is_gone(database: Database) -> None:
    """An update that is taken back needs nobody: the workers of the old version take charge as soon as those of the new
    one have ended, and then go on with what they want.
    """
    async with serving(OLD, database, QUICK) as old:
        async with serving(NEW, database, QUICK) as new:
            await append(database, ("k", "A", {}), ("k", "B", {}))
            await until_caught_up(new, NAMES)
            await old.saw(StoodBack, subscription="whole")
        await append(database, ("k", "A", {}), ("k", "B", {}), ("k", "A", {}))
        for name in NAMES:
            await old.saw(TookCharge, subscription=name)
        await until_caught_up(old, NAMES)
    assert await seen_of(database, "A") == same({1, 3, 5})
    assert await seen_of(database, "B") == same({2})
    await assert_sound(database)


@pytest.mark.timeout(60)
async def test_a_run_of_the_old_version_says_why_it_does_nothing(database: Database) -> None:
    """A single-shot run of the old version beside a live worker of the new one handles nothing, names the reason for
    each subscription, and so does its set-up.
    """
    async with opened(OLD, database, QUICK) as old:
        await old.engine.setup()
        async with serving(NEW, database, QUICK) as new:
            await until_caught_up(new, NAMES)
            result = await old.engine.run()
            assert (result.processed, len(result.errors)) == (0, 3)
            assert all("another version of this app" in error.text for error in result.errors)
