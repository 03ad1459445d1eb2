"""What comes in from elsewhere: other people's tables, times of other zones, events too large to hold many of."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace import (
    App,
    Connection,
    Event,
    PartitionKey,
    RetryPolicy,
    Stream,
    TableMapping,
    Tag,
    on,
    projector,
)
from support.databases import Database
from support.fleet import fleet
from support.invariants import assert_sound
from support.noting import NOTE, noting, versions
from support.scenes import execute, opened, options, rows, serving, until_value, value
from support.waiting import until

JOURNAL = TableMapping(
    "Journal",
    schema="Their Store",
    position="No",
    stream="entity",
    type="what",
    data="body",
    version="revision",
    time="happened",
    tags="labels",
)


async def test_a_mapped_table_end_to_end(database: Database) -> None:
    """Somebody else's table, under its own names and types, read where it lies: by stream, by tag, by type and whole,
    with plain inserts and a rolled-back one in between; nothing is written to it.
    """
    await execute(
        database,
        """create schema "Their Store";
           create table "Their Store"."Journal" (
               "No" bigserial primary key, entity uuid not null, revision bigint not null, what varchar(50) not null,
               body text not null, labels varchar[] , happened timestamp not null)""",
    )
    insert = (
        'insert into "Their Store"."Journal" (entity, revision, what, body, labels, happened)'
        " values ($1, $2, $3, $4, $5, $6)"
    )
    entities = [f"00000000-0000-0000-0000-00000000000{n}" for n in range(3)]
    times: set[datetime] = set()

    @projector("typed", partition_by=Tag("shop"))
    class Typed:
        @on("Paid")
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            assert event.recorded_at is not None
            times.add(event.recorded_at)
            await db.execute(NOTE, "typed", key, event.data["cents"])

    async def add(version: int) -> None:
        time = datetime(2026, 3, 29, 2, 30)  # noqa: DTZ001 - their column knows no zone
        async with database.connection() as connection:
            for entity in entities:
                kind, labels = ("Paid", ["shop:north"]) if version % 2 else ("Sent", None)
                await connection.execute(insert, entity, version, kind, f'{{"cents": {version}}}', labels, time)
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(insert, entities[0], 99, "Paid", "{}", ["shop:north"], time)
            await transaction.rollback()

    for version in (1, 2):
        await add(version)
    app = App(noting("by entity"), noting("whole", partition_by=None), Typed(), name="shop", events=JOURNAL)
    async with serving(app, database, options(lanes=2)):
        await until_value(database, "select count(*) from seen", 15)
        for version in (3, 4, 5):
            await add(version)
        await until_value(database, "select count(*) from seen", 30 + 9)
    for entity in entities:
        assert await versions(database, "by entity", entity) == [1, 2, 3, 4, 5]
    assert await versions(database, "whole", "") == [version for version in range(1, 6) for _ in entities]
    assert await versions(database, "typed", "north") == [version for version in (1, 3, 5) for _ in entities]
    assert times == {datetime(2026, 3, 29, 2, 30, tzinfo=UTC)}
    assert await value(database, "select distinct source from headrace.subscriptions") == "Their Store.Journal"
    assert await value(database, 'select count(*) from "Their Store"."Journal"') == 15
    await assert_sound(database)


async def test_times_carry_their_zone(database: Database) -> None:
    """L79: a server in one zone, sessions in another, a source across a change of the clock: handlers get instants with
    a zone, and a retry is due when it should be.
    """
    seen: list[tuple[datetime | None, datetime | None]] = []
    fails = True

    @projector("zoned", partition_by=Stream(), retry=RetryPolicy(attempts=1, jitter=0))
    class Zoned:
        @on()
        async def see(self, event: Event) -> None:
            seen.append((event.recorded_at, event.appended_at))
            if fails:
                raise ValueError("later")

    await execute(database, f"alter database {database.name} set timezone to 'America/St_Johns'")
    await execute(
        database,
        "set timezone to 'Australia/Lord_Howe';"
        "insert into headrace.events (stream, version, type, data, recorded_at)"
        " values ('a', 1, 'T', '{}', '2026-04-05 01:45:00'), ('a', 2, 'T', '{}', '2026-04-05 01:45:00+10:30')",
    )
    async with opened(App(Zoned(), name="shop"), database) as scene:
        await scene.engine.setup()
        await scene.engine.boot()
        due = await value(database, "select extract(epoch from r.due_at - clock_timestamp()) from headrace.ready r")
        assert 3 < due <= 5
        fails = False
        await execute(database, "update headrace.ready set due_at = due_at - interval '5 s'")
        await scene.engine.boot()
    now = datetime.now(UTC)
    for recorded, appended in seen:
        assert recorded is not None
        assert appended is not None
        assert recorded.tzinfo is not None
        assert abs((now - appended).total_seconds()) < 60
    assert [recorded for recorded, _ in seen[-2:]] == [
        datetime(2026, 4, 4, 15, 15, tzinfo=UTC),
        datetime(2026, 4, 4, 15, 15, tzinfo=UTC),
    ]
    await assert_sound(database)


def peak_megabytes(pid: int) -> float:
    """Return the largest memory that a process has had so far; 0 when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


@pytest.mark.timeout(300)
async def test_large_events_do_not_fill_the_memory(database: Database, scale: float) -> None:
    """L72: many events of 1 MB (2,000 at scale 1), and thousands of tiny ones: the worker loads by bytes, so its memory
    stays flat and far below the sum; tiny events still come in large batches.
    """
    large, tiny = max(200, round(2000 * scale)), 4000
    await execute(
        database,
        "insert into headrace.events (stream, version, type, data)"
        " select 'large' || n % 4, n / 4 + 1, 'T', jsonb_build_object('text', repeat(md5(n::text), 32768))"
        f" from generate_series(0, {large - 1}) n",
        "insert into headrace.events (stream, version, type, data)"
        f" select 'tiny' || n % 10, n / 10 + 1, 'T', '{{}}' from generate_series(0, {tiny - 1}) n",
    )
    peak = 0.0
    with fleet(database.dsn) as workers:
        worker = workers.start("sizes:app", "--until-caught-up", "--timeout", "250")

        def ended() -> bool:
            nonlocal peak
            peak = max(peak, peak_megabytes(worker.pid))
            return not worker.running

        await until(ended, 260.0, "the worker has caught up", every=0.02)
        assert worker.wait() == 0
    assert await rows(database, "select sum(events), sum(bytes) / 1048576 from sizes where key like 'large%'") == [
        (large, large)
    ]
    assert await value(database, "select sum(events) from sizes where key like 'tiny%'") == tiny
    batches = "select max(events) from sizes where key like 'tiny%'"
    assert await value(database, batches) >= 100
    assert 30 < peak < 256, f"{peak:.0f} MB for events of {large} MB"
    await assert_sound(database)
