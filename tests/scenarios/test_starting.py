"""Before the first event: set-up hooks that fail, events that nobody wants, roles that may do little."""

import asyncio
from typing import Any

import pytest

from headrace import App, Connection, Event, PartitionKey, Stream, on, projector, setup
from headrace.domain.engine_events import MainStopped, Routed, StatusChanged
from headrace.domain.errors import MissingRight
from headrace.runtime.compose import EngineOptions
from headrace.store.migrate import grants, migrate
from support.commands import headrace
from support.databases import Database
from support.effects import NOTE, SEEN, seen
from support.fleet import fleet
from support.invariants import assert_sound
from support.scenes import append, execute, opened, options, rows, serving, until_value, value

QUICK = options(retry_min=0.1, retry_max=0.1)


# ------------------------------------------------------------------------------------------------------- set-up hooks


class UnprintableError(Exception):
    """An error that cannot be printed."""

    def __str__(self) -> str:
        """Raise."""
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [ValueError("no rights yet"), UnprintableError(), asyncio.CancelledError()])
async def test_a_set_up_that_fails_is_tried_again_and_keeps_no_other(database: Database, error: BaseException) -> None:
    """A hook that raises, whatever it raises, puts its own subscription into error, with the text; the others of the
    app start; the hook is tried again until it succeeds, and then all history is handled.
    """
    fails = True

    @projector("failing", partition_by=Stream())
    class Failing:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute("create table if not exists half_made (n int)")
            if fails:
                raise error

        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await db.execute(NOTE, f"failing {key}", event.version)

    @projector("other", partition_by=Stream())
    class Other:
        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await db.execute(NOTE, f"other {key}", event.version)

    await execute(database, SEEN)
    await append(database, ("a", "T", {}), ("a", "T", {}))
    async with serving(App(Failing(), Other(), name="shop"), database, QUICK) as scene:
        await scene.saw(MainStopped, subscription="failing")
        await until_value(database, "select array_agg(version order by place) from seen where key = 'other a'", [1, 2])
        assert "set-up failed" in scene.of(MainStopped)[0].reason
        fails = False
        await until_value(database, "select status from headrace.subscriptions where name = 'failing'", "active")
        await until_value(database, "select count(*) from seen where key = 'failing a'", 2)
    assert await seen(database, "failing a") == [1, 2]
    await assert_sound(database)


# ------------------------------------------------------------------------------------------------- events nobody wants


class ByStream:
    """A partitioner in Python."""

    def key(self, event: Event[Any]) -> str | None:
        """Return the stream."""
        return event.stream


@pytest.mark.parametrize("partition_by", [Stream(), ByStream(), None], ids=["in the store", "in Python", "whole"])
async def test_a_long_stretch_of_other_events_is_passed_once(
    database: Database, partition_by: Any, scale: float
) -> None:
    """L27: of so many events (500,000 at scale 1) the subscription wants none: after the first pass its position is at
    the end and stays there through restarts; the next event that it wants is handled at once.
    """
    many = max(20_000, round(500_000 * scale))
    await execute(
        database,
        SEEN,
        "insert into headrace.events (stream, version, type, data)"
        f" select 's' || n % 100, n / 100 + 1, 'Other', '{{}}' from generate_series(0, {many - 1}) n",
    )

    @projector("rare", partition_by=partition_by)
    class Rare:
        @on("Rare")
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await db.execute(NOTE, event.stream, event.version)

    app = App(Rare(), name="shop")
    where = "partitions" if partition_by is None else "cursors"
    last = await value(database, "select max(position) from headrace.events")
    for _ in range(3):
        async with serving(app, database) as scene:
            await until_value(database, f"select position from headrace.{where}", last)
            await until_value(database, "select status from headrace.subscriptions", "active")
            await scene.engine.wait_for("rare", timeout=30)
            assert not scene.of(Routed)
    async with serving(app, database) as scene:
        await scene.engine.wait_for("rare", timeout=30)
        (position,) = await append(database, ("rare", "Rare", {}))
        await scene.engine.wait_for("rare", position=position, timeout=30)
        assert await seen(database, "rare") == [1]
        assert not scene.of(StatusChanged)
    await assert_sound(database)


@pytest.mark.parametrize("events", ["none", "holes", "unwanted"])
async def test_an_empty_log_is_caught_up_at_once(database: Database, events: str) -> None:
    """L67: with no event at all, with positions that were rolled back only, and with no event that is wanted: set-up,
    boot and run end at once, nothing is pending, and waiting returns.
    """

    @projector("keys", partition_by=Stream())
    class Keys:
        @on("Wanted")
        async def see(self, event: Event) -> None:
            raise AssertionError

    @projector("log")
    class Log:
        @on("Wanted")
        async def see(self, event: Event) -> None:
            raise AssertionError

    if events == "holes":
        async with database.connection() as connection:
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(
                "insert into headrace.events (stream, version, type, data) values ('s', 1, 'T', '{}')"
            )
            await transaction.rollback()
    if events == "unwanted":
        await append(database, *(("s", "T", {}) for _ in range(3)))
    async with opened(App(Keys(), Log(), name="shop"), database) as scene:
        await scene.engine.setup()
        for result in (await scene.engine.boot(), await scene.engine.run()):
            assert (result.processed, result.has_pending, result.errors) == (0, False, ())
        for name in ("keys", "log"):
            await scene.engine.wait_for(name, timeout=5)
    assert await rows(database, "select distinct status from headrace.subscriptions") == [("active",)]
    await assert_sound(database)


# ------------------------------------------------------------------------------------------------------------- rights

SCHEMA = "Head Race"


async def test_a_worker_needs_data_rights_only(empty_database: Database) -> None:
    """L78: a worker of a role that may create nothing, with an empty search_path, on a schema whose name has capitals
    and a blank, works; a right that is missing is named in one message, with exit code 2, and not retried.
    """
    await migrate(empty_database.dsn, SCHEMA)
    worker, dsn = f"worker_{empty_database.name}"[:60], ""
    await execute(
        empty_database,
        f"create role {worker} login",
        f"alter role {worker} set search_path to ''",
        "revoke create on schema public from public",
        "create table public.exact (key text, version int, primary key (key, version))",
        "create table public.batched (key text primary key, events int not null, last int not null)",
        f"grant select, insert, update on public.exact, public.batched to {worker}",
        grants(worker, SCHEMA),
    )
    dsn = empty_database.dsn_as(worker)
    line = b'{"stream": "s", "type": "T", "data": {}}\n'
    imported = headrace("import", "-", dsn=dsn, stdin=line * 3, variables={"schema": SCHEMA})
    assert imported.code == 0, imported
    with fleet(dsn) as workers:
        variables = {"schema": SCHEMA, "log_level": "info"}
        done = workers.start("humble:app", "--until-caught-up", "--timeout", "60", variables=variables)
        assert done.wait() == 0, done.text()
        assert await value(empty_database, "select count(*) from public.exact") == 3
        await execute(empty_database, f'revoke update on "{SCHEMA}".ready from {worker}')
        refused = workers.start("humble:app", "--until-caught-up", "--timeout", "60", variables=variables)
        assert refused.wait() == 2, refused.text()
        assert "permission denied" in refused.text()
        assert "Traceback" not in refused.text()
        await execute(empty_database, f'revoke all on all tables in schema "{SCHEMA}" from {worker}')
        with pytest.raises(MissingRight):
            async with opened_as(dsn):
                pass
    await assert_sound(empty_database, SCHEMA)
    await execute(empty_database, f"drop owned by {worker}", f"drop role {worker}")


def opened_as(dsn: str) -> Any:
    """Open an engine as another role."""

    @projector("humble", partition_by=Stream())
    class Humble:
        @on()
        async def see(self, event: Event) -> None:
            return

    return App(Humble(), name="humble").engine(dsn, EngineOptions(schema=SCHEMA))
