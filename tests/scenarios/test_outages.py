"""The database goes away, connections break, workers are told to end: everything goes on without help, exactly."""

import asyncio
import urllib.error
import urllib.request
from collections import Counter
from datetime import datetime
from functools import partial

import asyncpg
import pytest

from headrace import App, Connection, Event, PartitionKey, Stream, on, projector, setup
from headrace.domain.engine_events import DatabaseLost
from support.databases import Database
from support.fleet import Fleet, WorkerProcess, fleet
from support.invariants import assert_sound
from support.scenes import Scene, append, options, rows, serving, until_value, value
from support.waiting import until

FILL = """
    insert into headrace.events (stream, version, type, data)
    select 's' || s, v, 'T', $3::jsonb from generate_series(1, $2) v, generate_series(1, $1) s
"""
SLOW = 60.0
"""Seconds that anything may take on a busy machine."""


async def fill(database: Database, streams: int, versions: int, data: str = "{}") -> int:
    """Append so many versions to so many streams; returns the number of events."""
    async with database.connection() as connection:
        await connection.execute(FILL, streams, versions, data)
    return streams * versions


async def fill_version(database: Database, streams: int, version: int) -> None:
    """Append one version to each stream."""
    async with database.connection() as connection:
        await connection.execute(
            "insert into headrace.events (stream, version, type, data)"
            " select 's' || s, $2, 'T', '{}' from generate_series(1, $1) s",
            streams,
            version,
        )


async def count(database: Database, query: str) -> int:
    """Return a number; -1 while the database does not answer or the table is not there."""
    try:
        return int(await value(database, query))
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        return -1


async def until_more(database: Database, query: str, than: int) -> None:
    """Wait until a number has grown beyond another."""

    async def grown() -> bool:
        return await count(database, query) > than

    await until(grown, SLOW, f"{query} > {than}", every=0.02)


async def assert_exact(database: Database, streams: int, versions: int) -> None:
    """Assert that the read models of `enduring:app` hold every event once and in order, and that nothing is left."""
    events = streams * versions
    await until_value(database, "select count(*) from exact", events, SLOW * 2)
    await until_value(database, "select coalesce(sum(events), 0) from batched", events, SLOW)
    await until_value(database, "select count(*) from (select distinct key, version from effects) x", events, SLOW)
    for table in ("inbox", "ready", "leases", "failures"):
        await until_value(database, f"select count(*) from headrace.{table}", 0)
    assert await rows(database, "select distinct events, last from batched") == [(versions, versions)]
    disordered = """
        select count(*) from (select version, max(version) over (partition by key order by id
            rows between unbounded preceding and 1 preceding) as before from effects) x
         where version > coalesce(before, 0) + 1
    """
    assert await value(database, disordered) == 0


def end(workers: Fleet) -> None:
    """Drain all workers; each ends well."""
    for worker in workers.workers:
        worker.terminate()
    assert [worker.wait() for worker in workers.workers] == [0] * len(workers.workers)


# ---------------------------------------------------------------------------------------------- the database goes away


@pytest.mark.timeout(240)
async def test_the_database_is_restarted_under_two_workers(own_database: Database, scale: float) -> None:
    """L46: fast and immediate stops in the middle of work: the same two processes go on without help, every event has
    its effect once (a reactor's at least once), in order per key.
    """
    streams, versions = 60, max(30, round(200 * scale))
    events = await fill(own_database, streams, versions)
    with fleet(own_database.dsn) as workers:
        for _ in range(2):
            workers.start("enduring:app", variables={"lease_seconds": "2", "log_level": "info"})
        for number, hard in enumerate((False, True, False)):
            await until_more(own_database, "select count(*) from exact", events * number // 5)
            await asyncio.to_thread(own_database.cluster.restart, "immediate" if hard else "fast")
        await fill_version(own_database, streams, versions + 1)
        await assert_exact(own_database, streams, versions + 1)
        assert all(worker.running for worker in workers.workers)
        end(workers)
    await assert_sound(own_database)


OPEN = (
    "(select pid, application_name as name from pg_stat_activity where application_name like 'headrace %'"
    " and datname = current_database())"
)


@pytest.mark.timeout(240)
async def test_every_connection_is_ended_once(database: Database, scale: float) -> None:
    """L37: `pg_terminate_backend` on each connection of two workers, one after the other and twice over, while they
    work: nothing is lost, doubled or out of order, and no process ends.
    """
    streams, versions = 60, max(20, round(150 * scale))
    await fill(database, streams, versions)
    ended: set[int] = set()
    with fleet(database.dsn) as workers:
        for _ in range(2):
            workers.start("enduring:app", variables={"lease_seconds": "2", "log_level": "info"})
        for _ in range(2):
            await until_more(database, "select count(*) from exact", streams * (versions - 1))
            versions += 1
            await fill_version(database, streams, versions)
            # A worker connects again in its own time: at any one moment it may have no connection of a kind.
            kinds = f"select count(distinct split_part(name, ' ', 2)) from {OPEN} o where name ~ 'enduring|keeper'"
            await until_value(database, kinds, 2)
            for (pid,) in await rows(database, f"select pid from {OPEN} o"):
                await value(database, f"select pg_terminate_backend({pid})")
                await until_value(database, f"select count(*) from pg_stat_activity where pid = {pid}", 0, every=0.01)
                ended.add(pid)
        await assert_exact(database, streams, versions)
        assert all(worker.running for worker in workers.workers)
        end(workers)
    assert len(ended) >= 8
    await assert_sound(database)


def answer(worker: WorkerProcess, path: str) -> int:
    """Return the status of a probe, 0 when there is none."""
    port = worker._port()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as page:
            return int(page.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


async def test_a_worker_starts_while_the_database_is_down(own_database: Database) -> None:
    """A worker that is started during an outage waits: alive, not ready, saying why; then it works by itself."""
    await fill(own_database, 5, 4)
    await asyncio.to_thread(own_database.cluster.stop, "fast")
    with fleet(own_database.dsn) as workers:
        worker = workers.start("enduring:app", variables={"log_level": "info"})
        await until(lambda: "does not answer" in worker.text(), SLOW, "it says what it waits for")
        assert await asyncio.to_thread(answer, worker, "/livez") == 200
        assert await asyncio.to_thread(answer, worker, "/readyz") == 503
        await asyncio.to_thread(own_database.cluster.start)
        await assert_exact(own_database, 5, 4)
        await until(lambda: answer(worker, "/readyz") == 200, SLOW, "it is ready", every=0.1)
        end(workers)
    await assert_sound(own_database)


@pytest.mark.timeout(240)
async def test_a_flapping_database_leaves_one_of_each_duty(own_database: Database, scale: float) -> None:
    """L48: the database goes down and comes back again and again (10 times at scale 1), also in the middle of giving a
    claim back: counts stay exact, and afterwards there is one task of each duty, no more and no less.
    """
    handled: Counter[str] = Counter()

    @projector("flapping", partition_by=Stream())
    class Flapping:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute("create table exact (key text, version int, primary key (key, version))")

        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            handled[key] += 1
            await db.execute("insert into exact values ($1, $2)", key, event.version)

    def duties() -> Counter[str]:
        return Counter(task.get_name() for task in asyncio.all_tasks() if task.get_name() in DUTIES)

    flaps = max(4, round(10 * scale))
    async with serving(App(Flapping(), name="flapping"), own_database, options(lanes=2, lease_seconds=2)) as scene:
        await until_value(own_database, "select status from headrace.subscriptions", "active")
        before = duties()
        for version in range(1, flaps + 1):
            await fill_version(own_database, 300, version)
            await until(partial(_more_than, handled, handled.total()), SLOW, "it works")
            await asyncio.to_thread(own_database.cluster.restart, "immediate" if version % 2 else "fast")
        await until_value(own_database, "select count(*) from exact", 300 * flaps)
        await until_value(own_database, "select count(*) from headrace.leases", 0)
        assert duties() == before == Counter(DUTIES)
        assert scene.of(DatabaseLost)
        assert await value(own_database, "select count(*) from headrace.failures") == 0
    await assert_sound(own_database)


def _has_told(scene: Scene, facts: int) -> bool:
    return len(scene.observer.events) > facts


def _more_than(calls: Counter[str], before: int) -> bool:
    return calls.total() > before


DUTIES = {"horizon": 1, "due-work": 1, "set-up retries": 1, "router": 1, "lane": 2}


# ------------------------------------------------------------------------------------------------- workers come and go


@pytest.mark.timeout(240)
async def test_a_drained_worker_hands_over_at_once(database: Database, scale: float) -> None:
    """L50: SIGTERM to the worker that has a key, at random points: the other one goes on in less than 2 s, long before
    the lease could have run out; a reactor's event is repeated at most once, a projector's never.
    """
    drains = max(4, round(50 * scale))
    await fill(database, 3, 10, '{"seconds": 0.05}')
    events = 30
    with fleet(database.dsn) as workers:
        variables = {"lease_seconds": "120", "log_level": "info"}
        pair = [workers.start("enduring:acting", variables=variables) for _ in range(2)]
        await until(lambda: all(worker.started for worker in pair), SLOW, "two workers work")
        for _ in range(drains):
            await append(database, *(("s1", "T", {"seconds": 0.1}) for _ in range(20)))
            events += 20
            holder = await until(lambda: who_holds(database), SLOW, "somebody has the key", every=0.01)
            victim = next(worker for worker in pair if worker.pid == holder)
            await assert_goes_on(database, victim)
            pair.remove(victim)
            pair.append(workers.start("enduring:acting", variables=variables))
            await until(lambda: pair[-1].started, SLOW, "its successor works")
        await until_value(database, "select count(*) from (select distinct key, version from effects) x", events, SLOW)
        for worker in pair:
            worker.terminate()
        assert [worker.wait() for worker in pair] == [0, 0]
    assert await value(database, "select count(*) from effects") <= events + drains
    await assert_sound(database)


async def who_holds(database: Database) -> int | None:
    """Return the process id of the worker that has the key s1."""
    found = await rows(
        database,
        "select l.worker from headrace.leases l join headrace.ready r on r.lease = l.id"
        " join headrace.partitions p on p.id = r.part where p.key = 's1'",
    )
    return int(found[0][0].rpartition(":")[2]) if found else None


async def assert_goes_on(database: Database, victim: WorkerProcess) -> None:
    """Tell a worker that has the key s1 to end; another one goes on with it less than 2 s after the end."""
    signalled = await value(database, "select clock_timestamp()")
    victim.terminate()
    assert victim.wait() == 0
    ended = await value(database, "select clock_timestamp()")
    trace = "select min(at) from effects where key = 's1' and pid <> $1 and at > $2"

    async def next_trace() -> datetime | None:
        found: datetime | None = await value(database, trace, victim.pid, signalled)
        return found

    at = await until(next_trace, SLOW, "somebody goes on with s1", every=0.02)
    assert (at - ended).total_seconds() < 2.0


async def test_draining_says_nothing_on_the_error_log(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """An engine that is stopped at any point of its duties leaves no transaction that the driver complains of."""

    @projector("quiet", partition_by=Stream())
    class Quiet:
        @on()
        async def see(self, event: Event, db: Connection) -> None:
            await db.execute("select 1")

    for version in range(1, 21):
        await fill_version(database, 20, version)
        async with serving(App(Quiet(), name="quiet"), database, options(lanes=2, poll_max=0.002)) as scene:
            await until(partial(_has_told, scene, version % 5), message="it works")
    said = [record.getMessage() for record in caplog.records if record.levelname in {"WARNING", "ERROR"}]
    # Of a connection that is cancelled while it is being made, the driver leaves a future behind; harmless.
    assert [text for text in said if "unexpected connection_lost" not in text] == []
    await assert_sound(database)


async def test_a_second_signal_ends_a_blocked_worker(database: Database) -> None:
    """A plain `def` handler blocks its thread for minutes: the first SIGTERM waits for it, the second ends at once, and
    nothing of the event is stored.
    """
    await append(database, ("s", "T", {"seconds": 200}))
    with fleet(database.dsn) as workers:
        worker = workers.start("enduring:stubborn", variables={"log_level": "info"})
        await until(lambda: "blocking" in worker.text(), SLOW, "the handler blocks")
        worker.terminate()
        await until(lambda: "draining" in worker.text(), SLOW, "it drains")
        assert worker.running
        worker.terminate()
        assert worker.wait(15) in {130, 143}
    await until_value(database, "select count(*) from pg_stat_activity where application_name like 'headrace %'", 0)
    assert await value(database, "select count(*) from stubborn") == 0
    await assert_sound(database)


@pytest.mark.timeout(240)
async def test_batches_over_many_keys_stay_exact_under_kills(database: Database, scale: float) -> None:
    """L25, L32: batches over mixed keys, the worker killed in the middle of its work again and again (50 times at scale
    1): sums are exact, and each key went through its versions one by one.
    """
    kills, streams = max(5, round(50 * scale)), 80
    with fleet(database.dsn) as workers:
        variables = {"lease_seconds": "1", "log_level": "info"}
        team = [workers.start("enduring:folding", variables=variables) for _ in range(2)]
        for version in range(1, kills + 1):
            await fill_version(database, streams, version)
            await until_more(database, "select coalesce(sum(events), 0) from batched", streams * (version - 1))
            team.pop(0).kill()
            team.append(workers.start("enduring:folding", variables=variables))
        await until_value(database, "select sum(events) from batched", streams * kills, SLOW)
        await until(lambda: all(worker.started for worker in team), SLOW, "both work")
        for worker in team:
            worker.terminate()
        assert [worker.wait() for worker in team] == [0, 0]
    assert await rows(database, "select distinct events, last from batched") == [(kills, kills)]
    assert await value(database, "select count(*) from headrace.failures") == 0
    await assert_sound(database)
