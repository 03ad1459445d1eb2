"""A run that ends by itself says what is left, beside transactions that have drawn positions and are still open."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from headrace import App, Connection, Event, Stream, on, projector
from headrace.domain.errors import NotFinished
from support.databases import Database
from support.effects import SEEN
from support.scenes import append, execute, opened, rows
from support.waiting import until

INSERT = "insert into headrace.events (stream, version, type, data) values ($1, $2, $3, '{}') returning position"
HANDLED = "select array_agg(version order by place) from seen where key = $1"


@projector("keyed", partition_by=Stream())
class Keyed:
    """Notes what it sees of each stream."""

    @on("T", "Busy")
    async def see(self, event: Event, db: Connection) -> None:
        """Note one event."""
        await db.execute("insert into seen (key, version) values ($1, $2)", f"keyed {event.stream}", event.version)


@projector("whole", partition_by=None)
class Whole:
    """Notes what it sees of the whole log."""

    @on("T", "Busy")
    async def see(self, event: Event, db: Connection) -> None:
        """Note one event."""
        await db.execute("insert into seen (key, version) values ($1, $2)", f"whole {event.stream}", event.version)


def app() -> App:
    """Return a subscriber with keys and one without."""
    return App(Keyed(), Whole(), name="shop")


async def handled(database: Database, stream: str) -> list[list[int] | None]:
    """Return the versions of a stream that each subscriber has handled, in order."""
    return [(await rows(database, HANDLED, f"{name} {stream}"))[0][0] for name in ("keyed", "whole")]


@asynccontextmanager
async def open_append(database: Database) -> AsyncIterator[None]:
    """Hold the line in this block, by an append that is rolled back at its end."""
    async with database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.fetchval(INSERT, "open", 1, "T")
        yield
        await transaction.rollback()


@asynccontextmanager
async def always_open(database: Database) -> AsyncIterator[list[int]]:
    """Keep some append open at every moment of this block; yield the positions drawn so far."""
    drawn: list[int] = []
    ending = asyncio.Event()

    async def append_by_turns() -> None:
        async with database.connection() as one, database.connection() as other:
            turns, before = [one, other], None
            while not ending.is_set():
                turns.reverse()
                transaction = turns[0].transaction()
                await transaction.start()
                drawn.append(await turns[0].fetchval(INSERT, "busy", len(drawn) + 1, "Busy"))
                # The one before commits when this one has drawn.
                if before is not None:
                    await before.commit()
                before = transaction
            if before is not None:
                await before.commit()

    appending = asyncio.create_task(append_by_turns())
    await until(lambda: len(drawn) > 4, message="both append")
    try:
        yield drawn
    finally:
        ending.set()
        await asyncio.wait_for(appending, 30)


async def test_a_run_beside_an_open_append_says_that_work_is_left(database: Database) -> None:
    """What is committed above a held line is not handled yet, and nobody says that it was; an open append alone is no
    work.
    """
    await execute(database, SEEN)
    async with opened(app(), database) as scene:
        await scene.engine.setup()
        await append(database, ("a", "T", {}))
        await scene.engine.boot()
        await scene.engine.run()
        async with open_append(database):
            assert not (await scene.engine.run()).has_pending
            await append(database, ("a", "T", {}))
            result = await scene.engine.run()
            assert (result.processed, result.has_pending, result.all_locked) == (0, True, False)
        result = await scene.engine.run()
        assert (result.processed, result.has_pending) == (2, False)
    assert await handled(database, "a") == [[1, 2], [1, 2]]


async def test_a_worker_ends_beside_appenders_that_never_pause(database: Database) -> None:
    """Until caught up: with what was in the log when it began, not with what is appended meanwhile, and not at a moment
    in which no append is open.
    """
    await execute(database, SEEN)
    async with always_open(database) as drawn:
        await append(database, ("a", "T", {}), ("a", "T", {}))
        async with opened(app(), database) as scene:
            result = await scene.engine.serve(asyncio.Event(), until_caught_up=True, timeout=20)
        after = len(drawn)
        assert (result.has_pending, result.errors) == (False, ())
        assert await handled(database, "a") == [[1, 2], [1, 2]]
        await until(lambda: len(drawn) > after, message="they still append")


async def test_a_worker_does_not_end_beside_an_append_that_was_open_before(database: Database) -> None:
    """An append that was open when it began may bring an event that has to be handled: it says where it is held."""
    await execute(database, SEEN)
    async with opened(app(), database) as scene, open_append(database):
        with pytest.raises(NotFinished, match=r"not caught up in 1 s; reading is held at 0 of 1$"):
            await scene.engine.serve(asyncio.Event(), until_caught_up=True, timeout=1)
