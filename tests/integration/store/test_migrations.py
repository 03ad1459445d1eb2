"""Migrations: forward only, under a lock, never edited; what a worker finds, and what its role may do."""

import asyncio
from dataclasses import replace

import asyncpg
import pytest

from headrace.domain.errors import MissingRight, SchemaMissing, SchemaTooNew, UsageError
from headrace.store import migrate as module
from headrace.store.events import PostgresEvents
from headrace.store.horizon import PostgresHorizon
from headrace.store.migrate import grants, known_migrations, migrate, require_schema, schema_state
from headrace.store.pool import Database
from support import databases

NAMES = [migration.name for migration in known_migrations()]


@pytest.mark.both_versions
async def test_several_migrators_at_once(empty_database: databases.Database) -> None:
    """Whoever starts them, each migration is applied once, and all callers return with the schema in place."""
    applied = await asyncio.gather(*(migrate(empty_database.dsn) for _ in range(6)))
    assert sorted(name for names in applied for name in names) == NAMES
    assert await migrate(empty_database.dsn) == []


async def test_another_schema_lives_beside_ours(database: databases.Database) -> None:
    """A schema of any name gets everything, functions included, and shares nothing with another one."""
    schema = 'Shop "x"'
    assert await migrate(database.dsn, schema) == NAMES
    async with await Database.open(database.dsn, schema=schema) as there, await Database.open(database.dsn) as here:
        async with there.session() as session:
            await session.execute(f"insert into {schema_name(schema)}.events (stream, version, type, data) "
                                  "values ('s', 1, 'T', '1')")  # fmt: skip
        events = await PostgresEvents.open(there)
        assert await events.head() == 1
        assert (await PostgresHorizon(there, events.table).probe()).sequence == 1
        assert await (await PostgresEvents.open(here)).head() == 0


def schema_name(schema: str) -> str:
    """Return the schema quoted."""
    return '"' + schema.replace('"', '""') + '"'


async def test_failed_migration_leaves_nothing(
    empty_database: databases.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration is applied whole or not at all; the ones before it stay."""
    first, *_ = known_migrations()
    broken = replace(first, number=2, name="0002_pre_broken", sql="create table headrace.half(); select 1/0;")
    monkeypatch.setattr(module, "known_migrations", lambda: (first, broken))
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(empty_database.dsn)
    async with await Database.open(empty_database.dsn) as store, store.session() as session:
        assert (await schema_state(session)).applied == (first.name,)
        assert await session.fetchval("select to_regclass('headrace.half')") is None


async def test_edited_migration_is_refused(database: databases.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was applied and changed since is refused by name, and nothing is applied."""
    first, *rest = known_migrations()
    monkeypatch.setattr(module, "known_migrations", lambda: (replace(first, checksum="other"), *rest))
    with pytest.raises(UsageError, match=r"0001_pre_events .* must never be edited"):
        await migrate(database.dsn)


async def test_what_a_worker_finds(empty_database: databases.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """No schema, an older one and a newer one are told apart, each with what to do; a newer `pre` is no hindrance."""
    known = known_migrations()
    async with await Database.open(empty_database.dsn) as store, store.session() as session:
        with pytest.raises(SchemaMissing, match="is not there: run `headrace migrate`"):
            await require_schema(session)
        monkeypatch.setattr(module, "known_migrations", lambda: known[:1])
        await migrate(empty_database.dsn)
        monkeypatch.undo()
        with pytest.raises(SchemaMissing, match=rf"lacks {known[1].name}.*headrace migrate"):
            await require_schema(session)
        await migrate(empty_database.dsn)
        await require_schema(session)
        record = "insert into headrace.migrations (number, name, checksum) values ($1, $2, '')"
        await session.execute(record, 900, "0900_pre_later")
        await require_schema(session)
        await session.execute(record, 901, "0901_post_later")
        with pytest.raises(SchemaTooNew, match="0901_post_later of a later release: update"):
            await require_schema(session)


async def test_rights_of_a_worker_are_enough_and_no_more(database: databases.Database) -> None:
    """A role with the printed grants appends, reads and takes the horizon; it changes no event and makes no table."""
    role = f"worker_{database.name}"
    async with database.connection() as admin:
        await admin.execute(f'create role "{role}" login')
        async with await Database.open(database.dsn_as(role)) as store:
            with pytest.raises(MissingRight, match="grant"):
                await PostgresEvents.open(store)
        await admin.execute(grants(role))
        try:
            async with await Database.open(database.dsn_as(role)) as store, store.session() as session:
                await require_schema(session)
                events = await PostgresEvents.open(store)
                horizon = PostgresHorizon(store, events.table)
                async with admin.transaction():
                    await admin.execute(
                        "insert into headrace.events (stream, version, type, data) values ('s', 1, 'T', '1')"
                    )
                    (holder,) = (await horizon.probe()).holders
                    report = await horizon.describe(holder)
                    assert report is not None
                    assert (report.pid, report.since) == (admin.get_server_pid(), None)
                assert any("pg_read_all_stats" in note for note in (await horizon.check()).notes)
                for statement in (
                    "delete from headrace.events",
                    "update headrace.events set version = 2",
                    "create table headrace.mine()",
                    "delete from headrace.migrations",
                ):
                    with pytest.raises(MissingRight):
                        await session.execute(statement)
        finally:
            await admin.execute(f'drop owned by "{role}"; drop role "{role}"')


async def test_synchronous_commit_off_is_noted(database: databases.Database) -> None:
    """Appends that do not wait for the disk can vanish after they were read: status says so."""
    async with database.connection() as admin:
        await admin.execute(f'alter database "{database.name}" set synchronous_commit = off')
    async with await Database.open(database.dsn) as store:
        check = await PostgresHorizon(store, (await PostgresEvents.open(store)).table).check()
        assert any("synchronous_commit is off" in note for note in check.notes)
        assert check.problems == ()
