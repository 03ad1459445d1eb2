"""Fixed schedules for the windows that a random attack does not find."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import asyncpg
import pytest

from headrace.domain.engine_events import HorizonHeld
from headrace.domain.errors import NotExact, Unavailable
from headrace.domain.horizon import Horizon, HorizonProbe
from headrace.domain.mapping import TableMapping
from headrace.embedded.cluster import Cluster
from headrace.engine.horizon import HorizonService
from headrace.runtime.system import SystemClock
from headrace.store.mapping import inspect_table
from headrace.store.migrate import migrate
from headrace.store.pool import Database
from headrace.testing.observer import RecordingObserver
from support import databases
from support.appenders import Attack, appending
from support.readers import ExactReader, assert_complete, stored_events
from support.waiting import until

INSERT = (
    "insert into headrace.events (stream, version, type, data) values ($1, $2, 'Happened', '{}') returning position"
)

pytestmark = pytest.mark.both_versions


@asynccontextmanager
async def exact_reader(dsn: str, mapping: TableMapping | None = None) -> AsyncIterator[ExactReader]:
    """Yield a reader of our own table, or of a mapped one, that has taken its first horizon."""
    async with await Database.open(dsn, max_size=3) as store:
        async with store.session() as session:
            table = await inspect_table(session, mapping)
        reader = ExactReader.of(store, table)
        await reader.read_on()
        yield reader


async def append(connection: Any, stream: str, version: int = 1) -> int:
    """Insert one event and return its position."""
    position: int = await connection.fetchval(INSERT, stream, version)
    return position


async def looked_twice(reader: ExactReader) -> Horizon:
    """Look twice, so that whoever holds the line is named."""
    await reader.read_on()
    return await reader.read_on()


def streams(reader: ExactReader) -> list[str]:
    """Return the streams of what was read, in order."""
    return [stream for _, stream, _ in reader.seen]


# ------------------------------------------------------------------------------------------- what must not be missed


async def test_insert_that_lingers_before_it_has_an_xid(database: databases.Database) -> None:
    """A plain INSERT draws its position before it has a transaction id: with a slow BEFORE ROW trigger a barrier on
    transaction ids passes over it; the line does not. (Our own table asks for the id in the same breath, a mapped one
    does not.)
    """
    async with database.connection() as slow, database.connection() as quick, database.connection() as gate:
        await gate.execute(
            """create table log (id bigint generated always as identity primary key, stream text, type text default '',
                                 data json default '{}');
               create function linger() returns trigger language plpgsql as $$
               begin if new.stream = 'slow' then perform pg_advisory_lock(7); perform pg_advisory_unlock(7); end if;
               return new; end $$;
               create trigger linger before insert on log for each row execute function linger();
               insert into log (stream) values ('first');  -- one value in 32 is logged, which takes an id
               select pg_advisory_lock(7)"""
        )
        insert = "insert into log (stream) values ($1) returning id"
        async with exact_reader(database.dsn, TableMapping("log", position="id")) as reader:
            first = asyncio.create_task(slow.fetchval(insert, "slow"))
            await until(lambda: _waits(gate, slow), message="the slow insert waits in its trigger")
            xid = "select backend_xid from pg_stat_activity where pid = $1"
            assert await gate.fetchval(xid, slow.get_server_pid()) is None
            assert await quick.fetchval(insert, "quick") == 3
            assert (await looked_twice(reader)).line == 1
            assert streams(reader) == ["first"]
            await gate.execute("select pg_advisory_unlock(7)")
            assert await first == 2
            await reader.read_on()
            assert streams(reader) == ["first", "slow", "quick"]


async def test_horizon_inside_the_select_loses(database: databases.Database) -> None:
    """A statement that takes the line itself has taken its snapshot before: an append that ends in between is below its
    line and not in its rows. Two statements, line first, see it.
    """
    async with (
        database.connection() as appender,
        database.connection() as gate,
        database.connection() as single,
        exact_reader(database.dsn) as reader,
    ):
        await gate.execute("select pg_advisory_lock(7)")
        transaction = appender.transaction()
        await transaction.start()
        position = await append(appender, "late")
        table = reader.events.table
        in_one = asyncio.create_task(
            single.fetch(
                """with gate as materialized (select pg_advisory_lock(7)),
                        line as materialized (select h.sequence, h.vxids from gate, headrace.horizon_v1($1, $2) h)
                   select l.sequence, l.vxids, e.position from line l left join headrace.events e
                       on e.position <= l.sequence""",
                table.sequence,
                table.relation,
            )
        )
        await until(lambda: _waits(gate, single), message="the single statement has its snapshot")
        await transaction.commit()
        await gate.execute("select pg_advisory_unlock(7)")
        (row,) = await in_one
        assert (row["sequence"], row["vxids"], row["position"]) == (position, None, None)
        await reader.read_on()
        assert streams(reader) == ["late"]


async def test_repeatable_read_is_refused(database: databases.Database) -> None:
    """A reader with one snapshot for all its statements would lose events the same way: the line is refused to it."""
    async with await Database.open(database.dsn) as store, store.session() as session:
        table = await inspect_table(session)
        await session.execute("set default_transaction_isolation to 'repeatable read'")
        with pytest.raises(NotExact, match="READ COMMITTED"):
            await session.fetchrow(session.queries.horizon_probe, table.sequence, table.relation)


async def test_standby_is_refused(own_cluster: Cluster) -> None:
    """A standby shows no locks of the primary's appends: there the line is refused, and the primary named."""
    await migrate(own_cluster.dsn())
    await asyncio.to_thread(own_cluster.stop)
    data = own_cluster.folder / "data"
    (data / "standby.signal").touch()
    os.chown(data / "standby.signal", data.stat().st_uid, data.stat().st_gid)
    await asyncio.to_thread(own_cluster.start)
    with pytest.raises(NotExact, match=r"standby.*read from the primary"):
        async with exact_reader(own_cluster.dsn()):
            pass


async def test_savepoint_does_not_hide_its_positions(database: databases.Database) -> None:
    """ROLLBACK TO releases the lock on the table, not the one on the sequence: who drew there is still seen."""
    async with (
        database.connection() as appender,
        database.connection() as other,
        exact_reader(database.dsn) as reader,
    ):
        transaction = appender.transaction()
        await transaction.start()
        savepoint = appender.transaction()
        await savepoint.start()
        drawn = await append(appender, "lost")
        await savepoint.rollback()
        await append(other, "other")
        horizon = await looked_twice(reader)
        assert (horizon.line, reader.seen) == (drawn - 1, [])
        assert horizon.held_by is not None
        assert horizon.held_by.pid == appender.get_server_pid()
        await append(appender, "late")
        await transaction.commit()
        await reader.read_on()
        assert streams(reader) == ["other", "late"]


async def test_lock_table_does_not_hide_an_append(database: databases.Database) -> None:
    """A stronger lock on the table stands beside the one that INSERT takes: each mode is shown."""
    async with (
        database.connection() as appender,
        exact_reader(database.dsn) as reader,
        appender.transaction(),
    ):
        await appender.execute("lock table headrace.events in share row exclusive mode")
        await append(appender, "locked")
        assert (await looked_twice(reader)).is_held


async def test_prepared_transaction_holds_and_is_named_by_its_gid(database: databases.Database) -> None:
    """A forgotten prepared transaction has no pid: its gid says which COMMIT PREPARED would free the line."""
    async with (
        database.connection() as appender,
        database.connection() as other,
        exact_reader(database.dsn) as reader,
    ):
        gid = f"forgotten-{database.name}"
        await appender.execute("begin")
        await append(appender, "prepared")
        assert (await reader.read_on()).line == 0
        await appender.execute(f"prepare transaction '{gid}'")
        try:
            await append(other, "other")
            assert (await looked_twice(reader)).line == 0
            report = await reader.service.holder()
            assert report is not None
            assert (report.pid, report.gid, report.age is not None) == (None, gid, True)
            assert gid in str(report)
            # A process that starts now knows nothing of it, and must not pass it either.
            reader.restart()
            assert (await looked_twice(reader)).line == 0
        finally:
            await other.execute(f"commit prepared '{gid}'")
        await reader.read_on()
        assert streams(reader) == ["prepared", "other"]


async def test_start_beside_an_open_append(database: databases.Database) -> None:
    """Who starts beside an open append reads the rows that follow without a hole, and not one row further."""
    async with database.connection() as appender, database.connection() as other:
        for version in (1, 2, 3):
            await append(other, "before", version)
        transaction = appender.transaction()
        await transaction.start()
        assert await append(appender, "late") == 4
        assert await append(other, "after") == 5
        async with exact_reader(database.dsn) as reader:
            assert [position for position, _, _ in reader.seen] == [1, 2, 3]
            await transaction.commit()
            await reader.read_on()
            assert streams(reader) == ["before", "before", "before", "late", "after"]


# ------------------------------------------------------------------------------------------------ whom nobody waits for


async def test_unrelated_transactions_delay_no_reader(database: databases.Database) -> None:
    """An open writing transaction in another database, an idle-in-transaction session with an xid, a FOR UPDATE holder,
    a VACUUM's lock and other processes' looks hold nothing back.
    """
    elsewhere = database.cluster.dsn()
    async with (
        database.connection() as idle,
        database.connection() as locker,
        database.connection() as vacuum,
        database.connection() as appender,
        exact_reader(database.dsn) as reader,
        exact_reader(database.dsn) as other_process,
    ):
        outside = await asyncpg.connect(elsewhere)
        await outside.execute("begin; create temp table t(a int); insert into t values (1)")
        await idle.execute("begin; select pg_current_xact_id()")
        await append(appender, "one")
        await locker.execute("begin; select from headrace.events for update")
        await vacuum.execute("begin; lock table headrace.events in share update exclusive mode")
        position = await append(appender, "two")
        await other_process.read_on()
        horizon = await reader.read_on()
        assert (horizon.line, horizon.head) == (position, position)
        assert streams(reader) == ["one", "two"]
        await outside.close()


async def test_looks_of_other_processes_do_not_stall(database: databases.Database) -> None:
    """A look takes the sequence's lock for an instant: with two readers elsewhere that look all the time the line still
    follows every append, and nobody is reported as holding it.
    """
    observer = RecordingObserver()
    async with (
        database.connection() as appender,
        exact_reader(database.dsn) as reader,
        exact_reader(database.dsn) as one,
        exact_reader(database.dsn) as other,
    ):
        service = HorizonService(reader.source, SystemClock(), observer)
        running = [asyncio.create_task(coroutine) for coroutine in (_look_on(one), _look_on(other), service.run())]
        for version in range(1, 50):
            position = await append(appender, "steady", version)
            await until(partial(_line_at, reader, position), message="the line reaches the append")
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        assert observer.of(HorizonHeld) == []


async def test_open_append_delays_only_what_is_above_it(database: databases.Database) -> None:
    """Everything below an open append is read; who holds the rest is named with application, pid and age."""
    async with (
        database.connection(server_settings={"application_name": "svc-orders"}) as appender,
        database.connection() as other,
        exact_reader(database.dsn) as reader,
    ):
        await append(other, "below")
        await reader.read_on()
        transaction = appender.transaction()
        await transaction.start()
        await append(appender, "open")
        await append(other, "above")
        horizon = await looked_twice(reader)
        assert (streams(reader), horizon.line, horizon.head) == (["below"], 1, 3)
        report = await reader.service.holder()
        assert report is not None
        assert (report.pid, report.application) == (appender.get_server_pid(), "svc-orders")
        assert report.state == "idle in transaction"
        assert report.age is not None
        assert 0 <= report.age < 60
        await transaction.rollback()
        await reader.read_on()
        assert streams(reader) == ["below", "above"]


# --------------------------------------------------------------------------------------------- tables that are refused


async def test_cache_of_our_sequence_is_refused(database: databases.Database) -> None:
    """With CACHE 50 a session draws from a block of its own, below a line already passed: an event is lost (shown), so
    our table is refused, naming the fix.
    """
    async with (
        database.connection() as admin,
        database.connection() as early,
        database.connection() as late,
        exact_reader(database.dsn) as reader,
    ):
        await admin.execute("alter sequence headrace.events_position_seq cache 50")
        with pytest.raises(NotExact, match=r"CACHE 50.*alter sequence headrace\.events_position_seq cache 1.*connect"):
            await reader.read_on()
        careless = ExactReader.of(reader.events._database, reader.events.table, exact=False)
        assert await append(early, "early") < await append(late, "late")
        assert "CACHE 50" in (await careless.read_on()).problems[0]
        await append(early, "early", 2)
        await careless.read_on()
        assert streams(careless) == ["early", "late"]
        assert len(await stored_events(reader.events._database)) == 3


async def test_mapped_table_with_cache_runs_only_when_it_says_so(database: databases.Database) -> None:
    """Somebody else's table with CACHE 50 is refused too, unless its mapping says exact=False; it keeps being told."""
    async with database.connection() as admin, await Database.open(database.dsn) as store:
        await admin.execute(
            """create sequence s cache 50;
               create table log (id bigint primary key default nextval('s'), stream text, type text, body text);
               insert into log (stream, type, body) values ('a', 'b', '{}')"""
        )
        for exact in (True, False):
            mapping = TableMapping("log", position="id", data="body", sequence="public.s", exact=exact)
            async with store.session() as session:
                table = await inspect_table(session, mapping)
            reader = ExactReader.of(store, table, exact=mapping.exact)
            if exact:
                with pytest.raises(NotExact, match="CACHE 50"):
                    await reader.service.start()
            else:
                await reader.service.start()
                await reader.read_on()
                assert len(reader.seen) == 1
                assert "CACHE 50" in reader.service.problems[0]


# ---------------------------------------------------------------------------------------------------- crashes, restarts


async def test_crash_takes_back_a_rolled_back_tail(make_cluster: Callable[..., Cluster]) -> None:
    """Positions of rolled-back appends are not durable: after a crash they come again, at or below the old line. A
    reader that goes on from its last row reads them; one that stored the line would lose them.
    """
    cluster = make_cluster({"fsync": "on", "wal_writer_delay": "10s", "autovacuum": "off"})
    await migrate(cluster.dsn())
    async with exact_reader(cluster.dsn()) as reader:
        for attempt in range(1, 6):
            horizon, position = await _append_crash_append(cluster, reader, attempt)
            await until(lambda: _reads_on(reader), message="the reader comes back by itself")
            if position <= horizon.line:
                break
        else:
            pytest.fail("the sequence never went back: this schedule shows nothing")
        assert streams(reader) == ["kept", "after"] * attempt


async def _append_crash_append(cluster: Cluster, reader: ExactReader, version: int) -> tuple[Horizon, int]:
    """Return the horizon over a tail that nobody kept, and the position of the first event after the crash.

    The tail is short, so that its log fits into a page that is not written yet; now and then it does not.
    """
    appender = await asyncpg.connect(cluster.dsn())
    await append(appender, "kept", version)
    transaction = appender.transaction()
    await transaction.start()
    await appender.execute("select nextval('headrace.events_position_seq') from generate_series(1, 40)")
    await transaction.rollback()
    horizon = await reader.read_on()
    await asyncio.to_thread(cluster.restart, "immediate")
    appender.terminate()
    appender = await asyncpg.connect(cluster.dsn())
    position = await append(appender, "after", version)
    await appender.close()
    return horizon, position


async def test_backend_crash_makes_floors_worthless(own_cluster: Cluster) -> None:
    """One killed server process restarts all of them under the same postmaster: the start time stays, the sequence may
    go back; the source shows another server all the same.
    """
    await migrate(own_cluster.dsn())
    async with exact_reader(own_cluster.dsn()) as reader:
        before = await reader.source.probe()
        victim = await asyncpg.connect(own_cluster.dsn())
        pid = victim.get_server_pid()
        os.kill(pid, signal.SIGKILL)
        victim.terminate()
        after = await until(lambda: _other_server(reader, before.server), message="another server is seen")
        assert after is not None
        assert after.server.split()[:2] == before.server.split()[:2], "the postmaster was started again"


@pytest.mark.timeout(300)
async def test_server_restarts_under_reader_and_appenders(own_cluster: Cluster, scale: float) -> None:
    """Fast and immediate stops under load: the reader goes on without help, and misses nothing."""
    await migrate(own_cluster.dsn())
    attack = Attack(own_cluster.dsn(), seed=1, appenders=8, events=max(3000, int(60_000 * scale)))
    async with exact_reader(own_cluster.dsn()) as reader:
        with appending(attack) as ended:
            reading = asyncio.create_task(_read_through(reader, ended))
            for mode in ("fast", "immediate", "fast"):
                rows = len(reader.seen)
                await until(partial(_has_read, reader, rows + 100, ended), timeout=60)
                await asyncio.to_thread(own_cluster.restart, mode)
            await until(ended, timeout=200, message="the appenders come to their end", every=0.1)
            await reading
        await until(lambda: _reads_on(reader))
        assert_complete(reader.seen, await stored_events(reader.events._database))


async def test_store_that_went_back_is_seen(database: databases.Database) -> None:
    """L9: a stored position above the sequence shows in every horizon, so that it can be told instead of waited for."""
    async with database.connection() as admin, exact_reader(database.dsn) as reader:
        for version in range(1, 6):
            await append(admin, "old", version)
        await reader.read_on()
        await admin.execute(
            "delete from headrace.events where position > 2; alter sequence headrace.events_position_seq restart 3"
        )
        horizon = await reader.read_on()
        assert reader.position == 5
        assert horizon.head < reader.position
        # And whoever is open now is not taken for final because of that position.
        async with admin.transaction():
            await append(admin, "open")
            reader.restart()
            assert (await looked_twice(reader)).line < 3


# -------------------------------------------------------------------------------------------------------------- helpers


async def _waits(observer: Any, session: Any) -> bool:
    return bool(
        await observer.fetchval(
            "select exists (select from pg_locks where pid = $1 and not granted)", session.get_server_pid()
        )
    )


def _has_read(reader: ExactReader, rows: int, ended: Callable[[], bool]) -> bool:
    return len(reader.seen) > rows or ended()


async def _line_at(reader: ExactReader, position: int) -> bool:
    return (await reader.read_on()).line >= position


async def _look_on(reader: ExactReader) -> None:
    while True:
        await reader.service.refresh()


async def _other_server(reader: ExactReader, server: str) -> HorizonProbe | None:
    with suppress(Unavailable):
        probe = await reader.source.probe()
        return probe if probe.server != server else None
    return None


async def _reads_on(reader: ExactReader) -> bool:
    with suppress(Unavailable):
        return not (await reader.read_on()).is_held
    return False


async def _read_through(reader: ExactReader, ended: Callable[[], bool]) -> None:
    while not ended():
        await until(lambda: _looks(reader), timeout=60)


async def _looks(reader: ExactReader) -> bool:
    with suppress(Unavailable):
        await reader.read_on()
        return True
    return False
