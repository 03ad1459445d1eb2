"""The event table is taken back to an older state, and what subscriptions have stored is not."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from headrace import App, Connection, Event, Stream, on, projector
from headrace.domain.engine_events import MainStopped
from headrace.domain.errors import NotFinished
from headrace.engine import rewound
from headrace.runtime.compose import EngineOptions
from support.commands import headrace
from support.databases import Database
from support.effects import SEEN
from support.invariants import assert_sound
from support.rewinding import go_back, restore
from support.scenes import (
    Scene,
    append,
    execute,
    opened,
    options,
    rows,
    serving,
    until_caught_up,
    until_value,
    value,
)
from support.statements import Statements
from support.waiting import until

STANDING = "select array_agg(status || ' ' || coalesce(error_class, '-') order by name) from headrace.subscriptions"
STOPPED = ["error log", "error log", "error log"]
RUNNING = ["active -", "active -", "active -"]
NAMES = ("keys", "keys in Python", "log")
NOTE = "insert into seen (key, version) values ($1, $2)"


class ByStream:
    """A partitioner in Python."""

    def key(self, event: Event[Any]) -> str | None:
        """Return the stream."""
        return event.stream


def noting(name: str, partition_by: Any) -> object:
    """Return a subscriber that notes every event under its name."""

    @projector(name, partition_by=partition_by)
    class Noting:
        @on()
        async def see(self, event: Event, db: Connection) -> None:
            await db.execute(NOTE, f"{name} {event.stream}", event.version)

    return Noting()


def app() -> App:
    """Return one subscriber of each way to follow the log."""
    return App(noting("keys", Stream()), noting("keys in Python", ByStream()), noting("log", None), name="shop")


async def handled(database: Database) -> dict[str, list[int]]:
    """Return the versions that were handled, by stream; each subscriber must have handled the same."""
    found = {
        name: {
            key.removeprefix(f"{name} "): versions
            for key, versions in await rows(
                database,
                "select key, array_agg(version order by place) from seen where key like $1 || ' %'"
                " and key not like $1 || ' in Python %' group by key",
                name,
            )
        }
        for name in NAMES
    }
    assert found["keys"] == found["keys in Python"] == found["log"]
    return found["log"]


async def take_back(database: Database, how: str) -> None:
    """Take the log of five events back: by hand to position 2, or to nothing."""
    async with database.connection() as connection:
        if how == "by hand":
            await go_back(connection, 2)
        else:
            await connection.execute(
                "create table lost_events as table headrace.events; truncate headrace.events restart identity"
            )


@asynccontextmanager
async def caught_up_at_five(database: Database, how: EngineOptions | None = None) -> AsyncIterator[Scene]:
    """Yield a worker that has handled five events."""
    await execute(database, SEEN)
    await append(database, *(("a", "T", {}) for _ in range(5)))
    async with serving(app(), database, how) as scene:
        await until_value(database, STANDING, RUNNING)
        for name in NAMES:
            await scene.engine.wait_for(name, position=5, timeout=30)
        yield scene


@pytest.mark.parametrize("how", ["by hand", "truncate"])
@pytest.mark.parametrize("worker", ["running", "stopped"])
async def test_a_log_that_went_back_stops_its_subscriptions_until_it_is_restored(
    database: Database, how: str, worker: str
) -> None:
    """Nothing that is appended below a stored position is passed over in silence: within seconds every main stands in
    error, says why and what helps, and nobody calls it caught up. Restored, all go on by themselves, and every event
    of the log has been handled exactly once.
    """
    async with AsyncExitStack() as stack:
        scene = await stack.enter_async_context(caught_up_at_five(database))
        if worker == "stopped":
            await stack.aclose()
        await take_back(database, how)
        await append(database, ("b", "T", {}))
        if worker == "stopped":
            scene = await stack.enter_async_context(serving(app(), database))
        await until_value(database, STANDING, STOPPED, timeout=15)
        for stopped in scene.of(MainStopped):
            assert "stored position 5 and the sequence went back to" in stopped.reason
        with pytest.raises(NotFinished, match="went back"):
            await scene.engine.wait_for("log", timeout=0.2)
        shown = json.loads(headrace("status", "--output", "json", dsn=database.dsn).out)["subscriptions"]
        assert [one["standing"] for one in shown] == ["log went back"] * 3
        assert all("restore the log to position 5 or above" in one["reasons"][0] for one in shown)
        assert await handled(database) == {"a": [1, 2, 3, 4, 5]}

        async with database.connection() as connection:
            await restore(connection)
        await until_value(database, STANDING, RUNNING, timeout=15)
        await append(database, ("c", "T", {}), ("a", "T", {}))
        await until_caught_up(scene, NAMES)
        assert await handled(database) == {"a": [1, 2, 3, 4, 5, 6], "c": [1]}
    await assert_sound(database)


async def test_a_log_that_has_grown_again_is_not_what_it_was(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that were appended after the stop fill the log beyond the stored position: the main stays where it is,
    through looks and restarts, because those below the position were never handled.
    """
    monkeypatch.setattr(rewound, "LOOK_SECONDS", 0.1)
    statements = Statements()
    async with caught_up_at_five(database, statements.heard_by(options())):
        await take_back(database, "by hand")
        await until_value(database, STANDING, STOPPED, timeout=15)
        assert await append(database, *(("b", "T", {}) for _ in range(6))) == [3, 4, 5, 6, 7, 8]
        await several_looks(statements)
    async with serving(app(), database, statements.heard_by(options())):
        await several_looks(statements)
        assert await value(database, STANDING) == STOPPED
        assert await handled(database) == {"a": [1, 2, 3, 4, 5]}


async def several_looks(statements: Statements) -> None:
    """Wait until each subscription has been looked at several times."""
    statements.clear()
    await until(lambda: statements.count({"caught_up"}) >= 5 * len(NAMES), message="five looks at each")


async def test_a_run_by_hand_says_it_too(database: Database) -> None:
    """Without a worker, `run` reports the error instead of "nothing to do", and so does a worker that ends when caught
    up.
    """
    await execute(database, SEEN)
    await append(database, *(("a", "T", {}) for _ in range(5)))
    async with opened(app(), database) as scene:
        await scene.engine.setup()
        await scene.engine.boot()
        await scene.engine.run()
        await take_back(database, "by hand")
    async with opened(app(), database) as scene:
        result = await scene.engine.serve(asyncio.Event(), until_caught_up=True, timeout=30)
        assert {error.subscription for error in result.errors} >= set(NAMES)
        assert not result.has_pending
    await execute(
        database,
        "update headrace.subscriptions set status = 'active', prev_status = null, error_class = null, reason = null",
    )
    async with opened(app(), database) as scene:
        result = await scene.engine.run()
        assert {error.subscription for error in result.errors} == set(NAMES)
    assert await handled(database) == {"a": [1, 2, 3, 4, 5]}
