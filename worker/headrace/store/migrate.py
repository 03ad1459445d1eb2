"""Migrations: numbered SQL files, forward only, each in its own transaction under one lock.

``NNNN_pre_*`` files may be applied before the new code runs, the previous release keeps working
beside them; ``NNNN_post_*`` files only after. A file that was applied is never edited: its checksum
is stored. Nothing here runs at the start of a worker, which only checks what it finds.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources

from headrace.domain.errors import MissingRight, SchemaMissing, SchemaTooNew, UsageError
from headrace.store.pool import Database, Session
from headrace.store.queries import DEFAULT_SCHEMA, Queries, qualify, quoted

_FILE = re.compile(r"(\d{4})_(pre|post)_[a-z0-9_]+\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One file. ``checksum`` is the sha256 of its text, with plain line ends."""

    number: int
    name: str
    phase: str
    sql: str
    checksum: str


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What a database has: names of applied, missing and unknown migrations, in order."""

    applied: tuple[str, ...]
    missing: tuple[str, ...]
    unknown: tuple[str, ...]


@cache
def known_migrations() -> tuple[Migration, ...]:
    """Return the migrations of this release by number.

    Raises:
        ValueError: a file has a bad name, or a number is there twice or left out.

    """
    found = []
    for file in (resources.files("headrace.store") / "sql" / "migrations").iterdir():
        if not file.name.endswith(".sql"):
            continue
        match = _FILE.fullmatch(file.name)
        if match is None:
            raise ValueError(f"migration {file.name!r} is not named NNNN_pre_words.sql or NNNN_post_words.sql")
        sql = file.read_text("utf-8").replace("\r\n", "\n")
        checksum = hashlib.sha256(sql.encode()).hexdigest()
        found.append(Migration(int(match[1]), file.name.removesuffix(".sql"), match[2], sql, checksum))
    found.sort(key=lambda migration: migration.number)
    if [m.number for m in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations are not numbered 1, 2, 3, …: {[m.name for m in found]}")
    return tuple(found)


async def migrate(
    dsn: str, schema: str = DEFAULT_SCHEMA, *, pooler: bool = False, tell: Callable[[str], None] | None = None
) -> list[str]:
    """Bring the schema up to this release and return the names of the migrations applied now.

    Safe to call from several processes at once, and again; each migration is applied whole or not at all. ``tell``
    hears the name of each before it is applied.

    Raises:
        UsageError: an applied file was edited since, or the DSN is wrong.
        SchemaTooNew: the database has migrations that this release does not know.
        MissingRight: the role may not create what is needed.

    """
    applied: list[str] = []
    async with await Database.open(
        dsn, schema=schema, min_size=1, max_size=1, application_name="headrace migrate", pooler=pooler
    ) as database:
        for migration in known_migrations():
            try:
                async with database.session() as session, session.transaction():
                    if await _apply(session, migration, tell):
                        applied.append(migration.name)
            except MissingRight as error:
                # A worker's rights, which the message speaks of, would not do here.
                why = error.__cause__ or error
                raise MissingRight(
                    f"{why}: migrate as the role that shall own, or owns, the schema {schema!r}"
                ) from why
        async with database.session() as session:
            await require_schema(session)
    return applied


async def _apply(session: Session, migration: Migration, tell: Callable[[str], None] | None) -> bool:
    queries = session.queries
    await session.execute(queries.migration_lock, queries.schema)
    if not await session.fetchval(queries.migration_schema_exists, queries.schema):
        await session.execute(queries.render("migration_schema", schema=quoted(queries.schema)))
    await session.execute(queries.migration_table)
    stored = {row["number"]: row for row in await session.fetch(queries.migrations_applied)}
    row = stored.get(migration.number)
    if row is None:
        if tell is not None:
            tell(migration.name)
        # Without arguments this goes as one script: a migration has many statements.
        await session.execute(qualify(migration.sql, queries.schema))
        await session.execute(queries.migration_record, migration.number, migration.name, migration.checksum)
        return True
    if (row["name"], row["checksum"]) != (migration.name, migration.checksum):
        raise UsageError(
            f"migration {row['name']} was applied to this database, and {migration.name} of this release differs: "
            "an applied migration must never be edited; restore the file, and add a new one"
        )
    return False


async def schema_state(session: Session) -> SchemaState:
    """Tell which migrations this database has, lacks, and has beyond this release; never raises for a missing schema.

    Raises:
        MissingRight: the role may not look.

    """
    queries = session.queries
    stored: dict[int, str] = {}
    if await session.fetchval(queries.schema_relation) is not None:
        stored = {row["number"]: row["name"] for row in await session.fetch(queries.migrations_applied)}
    known = {migration.number: migration.name for migration in known_migrations()}
    return SchemaState(
        applied=tuple(name for number, name in sorted(stored.items()) if number in known),
        missing=tuple(name for number, name in sorted(known.items()) if number not in stored),
        unknown=tuple(name for number, name in sorted(stored.items()) if number not in known),
    )


async def require_schema(session: Session) -> None:
    """Return when this release can work with the schema.

    Raises:
        SchemaMissing: there is none, or an older one.
        SchemaTooNew: a later release has applied a `post` migration, which removes what this one needs.

    """
    state = await schema_state(session)
    where = f"schema {session.queries.schema!r}"
    if state.missing:
        had = f"lacks {', '.join(state.missing)}" if state.applied else "is not there"
        raise SchemaMissing(f"{where} {had}: run `headrace migrate` on this database as the owner of the schema")
    # A later `pre` migration only adds: during a rolling update two releases share one schema.
    broken = [name for name in state.unknown if "_post_" in name]
    if broken:
        raise SchemaTooNew(f"{where} has {', '.join(broken)} of a later release: update this program")


def grants(role: str, schema: str = DEFAULT_SCHEMA) -> str:
    """Return the GRANT statements for a role that runs workers: data rights only."""
    return Queries(schema).render("grants", role=quoted(role), schema=quoted(schema)) + ";\n"
