"""Two applications in one database: each works on its own subscriptions and on no other, whoever starts how often."""

from typing import Any

import pytest

from headrace import App, Connection, Event, PartitionKey, RetryPolicy, Stream, Unrecoverable, on, projector, setup
from headrace.domain.engine_events import KeyFailed, MainStopped
from headrace.domain.errors import OwnedElsewhere
from support.databases import Database
from support.fleet import fleet
from support.invariants import assert_sound
from support.scenes import append, execute, opened, options, rows, serving, until_caught_up, until_value, value
from support.waiting import until

AT_ONCE = RetryPolicy(attempts=0, parked_attempts=0)
TABLES = ("subscriptions", "cursors", "partitions", "ready", "failures", "counters", "leases")
QUICK = options(lease_seconds=2, retry_min=60, poll_max=0.1)
DUE = "update headrace.subscriptions set retry_at = clock_timestamp() - interval '1 s' where status = 'error'"


class Raising:
    """No key for events of one stream."""

    def key(self, event: Event[Any]) -> str | None:
        """Return the stream."""
        if event.stream == "keyless":
            raise LookupError("no key")
        return event.stream


def app_of(name: str) -> App:
    """Return an application with a subscription of every kind, named after it: one by stream, one over the whole log,
    and one that stands before an event without a key.
    """

    @projector(f"{name}_streams", partition_by=Stream(), retry=AT_ONCE, group="shared group")
    class Streams:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(
                f"create table if not exists {name}_seen (key text, version int, primary key (key, version))"
            )

        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            if event.type == "Doomed":
                raise Unrecoverable("no")
            await db.execute(f"insert into {name}_seen values ($1, $2)", key, event.version)

    @projector(f"{name}_log", group="shared group")
    class Log:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(f"create table if not exists {name}_noted (position bigint primary key)")

        @on()
        async def note(self, event: Event, db: Connection) -> None:
            await db.execute(f"insert into {name}_noted values ($1)", event.position)

    @projector(f"{name}_stands", partition_by=Raising(), group="shared group")
    class Stands:
        @on()
        async def see(self, event: Event) -> None:
            return

    return App(Streams(), Log(), Stands(), name=name)


async def everything_of(database: Database, name: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row that belongs to an application."""
    runs = f"(select run from headrace.subscriptions where app = '{name}')"
    found = {
        table: await rows(database, f"select t::text from headrace.{table} t where t.run in {runs} order by 1")
        for table in TABLES
    }
    parts = f"(select id from headrace.partitions where run in {runs})"
    found["inbox"] = await rows(database, f"select * from headrace.inbox where part in {parts} order by 1, 2")
    found["audit"] = await rows(database, f"select a::text from headrace.audit a where a.subscription like '{name}%'")
    return found


@pytest.mark.timeout(240)
async def test_neither_touches_what_is_the_others(database: Database, scale: float) -> None:
    """Each of two applications is restarted again and again (50 times at scale 1) while the other rests: status, epoch,
    positions, keys, failures, counters and audit of the resting one stay as they are, row by row.

    The one at rest has a parked key and a main in error whose retry is due: a stranger's worker tries neither.
    """
    restarts = max(8, round(50 * scale))
    await append(
        database,
        ("a", "T", {}),
        ("b", "T", {}),
        ("b", "Doomed", {}),
        ("a", "T", {}),
        ("keyless", "T", {}),
        ("b", "T", {}),
    )
    apps = {name: app_of(name) for name in ("blue", "green")}
    for name, app in apps.items():
        async with serving(app, database, QUICK) as scene:
            await scene.saw(MainStopped, subscription=f"{name}_stands")
            await scene.saw(KeyFailed, subscription=f"{name}_streams", key="b")
            await until_value(database, f"select count(*) from {name}_noted", 6)
            await until_value(
                database, f"select status from headrace.subscriptions where name = '{name}_log'", "active"
            )
            await until_value(
                database, f"select status from headrace.subscriptions where name = '{name}_streams'", "active"
            )
    total = 6
    await execute(database, DUE)
    for name, other in (("blue", "green"), ("green", "blue")):
        resting = await everything_of(database, other)
        for number in range(restarts):
            await append(database, (f"new {number}", "T", {}))
            total += 1
            async with serving(apps[name], database, QUICK) as scene:
                await until_value(database, f"select count(*) from {name}_noted", total, every=0.01)
                await scene.saw(MainStopped, subscription=f"{name}_stands")
        assert await everything_of(database, other) == resting
        await execute(database, DUE)
    async with serving(apps["blue"], database, QUICK) as blue, serving(apps["green"], database, QUICK) as green:
        await until_caught_up(blue, ["blue_log"])
        await until_caught_up(green, ["green_log"])
        for name, scene in (("blue", blue), ("green", green)):
            await scene.saw(MainStopped, subscription=f"{name}_stands")
            await until_value(database, f"select count(*) from {name}_seen", total - 2)
    stands = "select app, status from headrace.subscriptions where name like '%stands' order by 1"
    assert await rows(database, stands) == [("blue", "error"), ("green", "error")]
    await assert_sound(database)


@pytest.mark.timeout(240)
async def test_both_at_work_and_killed(database: Database, scale: float) -> None:
    """Workers of both applications side by side, killed and started again while events arrive: both are exact."""
    kills = max(3, round(20 * scale))
    with fleet(database.dsn) as workers:
        variables = {"lease_seconds": "1", "log_level": "info"}
        pair = {name: workers.start(f"rivals:{name}", variables=variables) for name in ("blue", "green")}
        total = 0
        for number in range(kills):
            name = ("blue", "green")[number % 2]
            await append(database, *((f"s{n % 7}", "T", {}) for n in range(40)))
            total += 40
            await until_value(database, f"select count(*) > {total - 40} from {name}_seen", True)
            pair[name].kill()
            pair[name] = workers.start(f"rivals:{name}", variables=variables)
        for name in pair:
            await until_value(database, f"select count(*) from {name}_seen", total)
            await until_value(database, f"select count(*) from {name}_noted", total)
        await until(lambda: all(worker.started for worker in pair.values()), 60.0, "both work")
        for worker in pair.values():
            worker.terminate()
        assert [worker.wait() for worker in pair.values()] == [0, 0]
    for name in pair:
        assert await value(database, f"select count(*) from headrace.subscriptions where app = '{name}'") == 2
    assert await rows(database, "select * from headrace.audit") == []
    assert await value(database, "select count(*) from headrace.failures") == 0
    await assert_sound(database)


async def test_a_name_of_another_app_is_refused(database: Database) -> None:
    """A second application that declares a name is refused at set-up, naming the owner; nothing of it is stored, and
    the owner's row stays as it is. A worker process says so in one message and exit code 2.
    """
    async with opened(app_of("blue"), database) as scene:
        await scene.engine.setup()

    @projector("blue_log")
    class Impostor:
        @on()
        async def see(self, event: Event) -> None:
            return

    @projector("of_my_own")
    class Other:
        @on()
        async def see(self, event: Event) -> None:
            return

    before = await everything_of(database, "blue")
    async with opened(App(Other(), Impostor(), name="red"), database) as scene:
        with pytest.raises(OwnedElsewhere, match=r"'blue_log' belongs to the app 'blue'.*not to 'red'"):
            await scene.engine.setup()
    assert await everything_of(database, "blue") == before
    assert await value(database, "select count(*) from headrace.subscriptions where app <> 'blue'") == 0
    await execute(database, "update headrace.subscriptions set app = 'somebody else'")
    with fleet(database.dsn) as workers:
        worker = workers.start("rivals:blue")
        assert worker.wait() == 2
        assert "belongs to the app 'somebody else'" in worker.text()
        assert "Traceback" not in worker.text()
    await assert_sound(database)
