"""`headrace worker`: starts without a database, drains on a signal, survives outages, says how it is."""

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.embedded.cluster import Cluster
from headrace.store.migrate import migrate
from support.commands import headrace
from support.databases import Database
from support.fleet import TESTS, Fleet, WorkerProcess, fleet
from support.waiting import until

APP = "cli_shop:app"
SLOW = 60.0
"""Seconds that a busy machine may take for anything that waits for a process."""


def log(*events: tuple[str, dict[str, Any]]) -> bytes:
    """Return a log of (stream, data) pairs."""
    return b"".join(json.dumps({"stream": s, "type": "T", "data": d}).encode() + b"\n" for s, d in events)


def append(database: Database, *events: tuple[str, dict[str, Any]]) -> None:
    """Append events; ids come from the text, so a second call must differ."""
    outcome = headrace("import", "-", dsn=database.dsn, stdin=log(*events))
    assert outcome.code == 0, outcome


async def seen(database: Database, count: int) -> bool:
    """Tell whether so many events are in the read model."""
    async with database.connection() as connection:
        if await connection.fetchval("select to_regclass('seen')") is None:
            return False
        return int(await connection.fetchval("select count(*) from seen")) == count


def probe(worker: WorkerProcess, path: str) -> tuple[int, str]:
    """Return status and text of a probe; 0 where nobody answers."""
    port = worker._port()
    if port is None:
        return 0, ""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


@pytest.fixture
def workers(database: Database) -> Iterator[Fleet]:
    """Workers on this test's database."""
    with fleet(database.dsn) as made:
        yield made


async def test_until_caught_up(database: Database) -> None:
    """It sets up and boots what is new, handles all there is, reports it and ends with 0."""
    append(database, *[(f"s-{n % 7}", {"n": n}) for n in range(300)])
    outcome = headrace(
        "worker", f"support.apps.{APP}", "--until-caught-up", "--timeout", "60", "-o", "json",
        dsn=database.dsn, cwd=TESTS, variables={"metrics_port": "0"},
    )  # fmt: skip

    assert (outcome.code, outcome.json["processed"], outcome.json["errors"]) == (0, 300, [])
    assert await seen(database, 300)
    assert all(json.loads(line)["level"] for line in outcome.err.splitlines())


async def test_parked_keys_do_not_keep_it_but_are_code_1(database: Database, workers: Fleet) -> None:
    """A parked key does not keep --until-caught-up from its end, which is not called caught up; the exit code is 1 and
    the key is named.
    """
    append(database, ("good", {}), ("bad", {"doom": True}), ("good", {"n": 2}))
    worker = workers.start(APP, "--until-caught-up", "--timeout", "60")

    assert worker.wait(SLOW) == 1
    assert "orders#bad" in worker.text()
    assert "not caught up: " in worker.text()
    assert ", the rest waits for a person" in worker.text()
    assert await seen(database, 2)


async def test_a_held_horizon_is_waited_for_named_and_timed(database: Database, workers: Fleet) -> None:
    """An open append holds the line: not caught up, exit code 4 after the time-out, its holder is in the log."""
    append(database, ("s", {}))
    insert = "insert into headrace.events (stream, version, type, data) values ('held', 1, 'T', '{}')"
    async with database.connection(server_settings={"application_name": "slow-import"}) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(insert)
        worker = workers.start(APP, "--until-caught-up", "--timeout", "6")
        assert worker.wait(SLOW) == 4
        await transaction.rollback()

    assert "slow-import" in worker.text()
    assert "not caught up in " in worker.text()


async def test_sigterm_finishes_what_runs(database: Database, workers: Fleet) -> None:
    """CLI-7: SIGTERM during a 3 s handler: it finishes, its position is stored, exit 0, nothing stays leased."""
    append(database, ("slow", {"await": 3}))
    worker = workers.start(APP)
    await until(lambda: "awaiting" in worker.text(), SLOW, "the handler runs")
    worker.terminate()

    assert worker.wait(SLOW) == 0
    assert await seen(database, 1)
    async with database.connection() as connection:
        assert await connection.fetchval("select count(*) from headrace.leases") == 0
        assert await connection.fetchval("select count(*) from headrace.workers") == 0
    assert "draining" in worker.text()


async def test_a_second_signal_ends_at_once(database: Database, workers: Fleet) -> None:
    """A second signal does not wait for the handler: the process ends and the event is not marked as handled."""
    append(database, ("slow", {"await": 18}))
    worker = workers.start(APP)
    await until(lambda: "awaiting" in worker.text(), SLOW, "the handler runs")
    worker.terminate()
    await until(lambda: "SIGTERM: draining" in worker.text(), SLOW, "the first signal is taken")
    worker.popen.send_signal(signal.SIGINT)

    assert worker.wait(15) in {130, 143}
    assert "Traceback" not in worker.text()
    assert not await seen(database, 1)


async def test_a_blocked_loop_is_slow_and_not_dead(database: Database, workers: Fleet) -> None:
    """While a handler blocks the event loop within its time-out the probes answer: alive, started."""
    append(database, ("slow", {"block": 6}))
    worker = workers.start(APP)
    await until(lambda: "blocking" in worker.text(), SLOW, "the handler blocks the loop")
    answers = {path: probe(worker, path)[0] for path in ("/livez", "/startupz")}
    metrics = probe(worker, "/metrics")[0]

    assert (answers, metrics) == ({"/livez": 200, "/startupz": 200}, 200)
    assert not await seen(database, 1)
    await until(lambda: seen(database, 1), SLOW)


async def test_probes_and_metrics_of_a_worker_at_rest(database: Database, workers: Fleet) -> None:
    """A worker that has caught up is alive, ready and started; its metrics carry the published names."""
    append(database, *[("s", {"n": n}) for n in range(5)])
    worker = workers.start(APP)
    await until(lambda: seen(database, 5), SLOW)
    await until(lambda: probe(worker, "/readyz")[0] == 200, SLOW, "it is ready")

    gauge = 'headrace_backlog_events{subscription="orders"} 0.0'
    await until(lambda: gauge in probe(worker, "/metrics")[1], SLOW, "the gauges are sampled")
    page = probe(worker, "/metrics")[1]
    assert worker.metric("headrace_handled_total", subscription="orders", outcome="handled") == 5
    for name in ("headrace_handle_seconds", "headrace_flush_seconds", "headrace_lease_lost_total"):
        assert f"{name.removesuffix('_total')}" in page
    assert [probe(worker, path)[0] for path in ("/livez", "/startupz")] == [200, 200]


async def test_only_the_chosen_subscribers(database: Database, workers: Fleet) -> None:
    """--subscriber, HEADRACE_SUBSCRIBERS and --group choose; what is not chosen is not set up."""
    workers.start(APP, "--until-caught-up", variables={"subscribers": "totals"}).wait(SLOW)
    async with database.connection() as connection:
        chosen = await connection.fetch("select name from headrace.subscriptions")
    workers.start(APP, "--until-caught-up", "--group", "shop").wait(SLOW)
    async with database.connection() as connection:
        both = await connection.fetch("select name from headrace.subscriptions order by name")

    assert [row["name"] for row in chosen] == ["totals"]
    assert [row["name"] for row in both] == ["orders", "totals"]


async def test_manual_setup_sets_nothing_up(database: Database, workers: Fleet) -> None:
    """HEADRACE_SETUP=manual leaves set-up to a person: nothing is created until `headrace setup`."""
    append(database, ("s", {}))
    worker = workers.start(APP, variables={"setup": "manual"})
    await until(lambda: probe(worker, "/startupz")[0] == 200, SLOW, "it has started")
    async with database.connection() as connection:
        statuses = await connection.fetch("select status from headrace.subscriptions")

    assert {row["status"] for row in statuses} == {"new"}
    assert headrace("setup", f"support.apps.{APP}", dsn=database.dsn, cwd=TESTS).code == 0
    await until(lambda: seen(database, 1), SLOW, "the worker goes on by itself")


async def test_it_waits_for_a_database_at_the_start(make_cluster: Callable[..., Cluster]) -> None:
    """A worker that starts before its database says so, stays alive and not ready, and works once it is there."""
    cluster = make_cluster()
    await migrate(cluster.dsn())
    database = Database(cluster, "postgres")
    append(database, ("s", {}))
    cluster.stop()
    with fleet(database.dsn) as workers:
        worker = workers.start(APP)
        await until(lambda: "the database does not answer" in worker.text(), SLOW, "it says what it waits for")
        assert probe(worker, "/livez")[0] == 200
        status, text = probe(worker, "/readyz")
        assert (status, "waiting for the database" in text) == (503, True)
        cluster.start()
        await until(lambda: seen(database, 1), SLOW, "it works")
        await until(lambda: probe(worker, "/readyz")[0] == 200, SLOW, "it is ready")
        worker.terminate()
        assert worker.wait(SLOW) == 0


async def test_it_survives_a_restart_of_the_database(make_cluster: Callable[..., Cluster]) -> None:
    """OBS-7: while the database is down the worker is alive and not ready; afterwards it goes on without help."""
    cluster = make_cluster()
    await migrate(cluster.dsn())
    database = Database(cluster, "postgres")
    append(database, ("s", {"n": 1}))
    with fleet(database.dsn) as workers:
        worker = workers.start(APP)
        await until(lambda: seen(database, 1), SLOW)
        cluster.stop("fast")
        await until(lambda: probe(worker, "/readyz")[0] == 503, SLOW, "it is not ready")
        assert probe(worker, "/livez")[0] == 200
        cluster.start()
        append(database, ("s", {"n": 2}), ("t", {"n": 3}))
        await until(lambda: seen(database, 3), SLOW, "what came later is handled")
        await until(lambda: probe(worker, "/readyz")[0] == 200, SLOW, "it is ready again")
        worker.terminate()
        assert worker.wait(SLOW) == 0
        assert "Traceback" not in worker.text()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"lanes": "zero"}, "the value of HEADRACE_LANES cannot be used"),
        ({"dsn": "nonsense://x"}, "must look like postgresql://"),
        ({"schema": "elsewhere"}, "run `headrace migrate`"),
    ],
)
def test_what_no_waiting_can_cure_ends_with_2(workers: Fleet, variables: dict[str, str], message: str) -> None:
    """Wrong settings, DSN or schema end the worker at once with one message and exit code 2."""
    worker = workers.start(APP, variables=variables)

    assert worker.wait(SLOW) == 2
    assert message in worker.text()
    assert "Traceback" not in worker.text()


async def test_no_password_in_what_a_worker_says(workers: Fleet) -> None:
    """A DSN with a password whose server is down: the log repeats the trouble, never the password."""
    down = "postgresql://app:s3cret@127.0.0.1:1/shop"
    worker = workers.start(APP, variables={"dsn": down})
    await until(lambda: worker.text().count("the database does not answer") >= 2, SLOW, "it tries again and again")
    worker.terminate()

    assert worker.wait(SLOW) == 0
    assert "s3cret" not in worker.text() + probe(worker, "/readyz")[1]
