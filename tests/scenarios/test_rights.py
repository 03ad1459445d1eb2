"""A role with the printed rights only, a schema whose name has capitals and a blank, an empty search path: all at once.

One life of workers and commands, in which every function of the schema is called and every right is used; then each
right is taken away.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from headrace import AppendCondition, EventStore, NewEvent
from headrace.domain.ids import PartitionKey, Run
from headrace.domain.mapping import TableMapping
from headrace.store.holds import hold_key, unhold_key
from headrace.store.mapping import inspect_table, save_source
from headrace.store.migrate import grants, migrate
from headrace.store.pool import Database as Pool
from headrace.store.pool import Session
from headrace.store.queries import quoted
from support.apps.narrow import GATE
from support.commands import Outcome, headrace
from support.databases import Database
from support.fleet import TESTS, fleet
from support.invariants import assert_sound
from support.scenes import execute, rows, until_value, value

SCHEMA = "Head Race"
APP = "support.apps.narrow:app"
TABLES = """
    create table public.seen (key text, version int, primary key (key, version));
    create table public.log (position bigint primary key);
    create table public.fixed (n int);
    create table public.theirs (
        position bigint generated always as identity primary key, stream text, type text, data jsonb, more jsonb);
"""
NOT_CALLED = r"""
    select array(select p.proname::text from pg_proc p
                  where p.pronamespace = $1::regnamespace
                    and not exists (select from pg_stat_user_functions f where f.funcid = p.oid and f.calls > 0)
                    -- An older release calls what has a successor.
                    and not exists (select from pg_proc n
                                     where n.pronamespace = p.pronamespace and n.proname > p.proname
                                       and n.proname ~ (regexp_replace(p.proname, '[0-9]+$', '') || '[0-9]+$'))
                  order by 1)
"""
NOT_USED = """
    select array(
        select format('%s %s', lower(g.privilege_type), g.table_name)
          from information_schema.role_table_grants g
          join pg_stat_user_tables t on t.schemaname = g.table_schema and t.relname = g.table_name
         where g.grantee = $2 and g.table_schema = $1
           and case g.privilege_type when 'INSERT' then t.n_tup_ins when 'UPDATE' then t.n_tup_upd
                                     when 'DELETE' then t.n_tup_del else t.seq_scan + coalesce(t.idx_scan, 0) end = 0
         order by 1)
"""


@dataclass(frozen=True, slots=True)
class Narrow:
    """A database and the role that works in it."""

    database: Database
    role: str

    @property
    def dsn(self) -> str:
        """The connection URL of the role."""
        return self.database.dsn_as(self.role)

    def run(self, *arguments: str, code: int = 0, stdin: bytes = b"") -> Outcome:
        """Run a command as the role; it must end with this code."""
        outcome = headrace(*arguments, dsn=self.dsn, stdin=stdin, cwd=TESTS, variables=VARIABLES)
        assert outcome.code == code, outcome
        return outcome

    async def append(self, *events: tuple[str, dict[str, Any]]) -> None:
        """Append events as the role."""
        async with EventStore.connect(self.dsn, schema=SCHEMA) as store:
            for stream, data in events:
                await store.append(stream, [NewEvent("Happened", data, tags=["a:1"])])


VARIABLES = {"schema": SCHEMA, "lease_seconds": "1", "log_level": "info", "metrics_port": "0"}


@asynccontextmanager
async def narrowed(database: Database) -> AsyncIterator[Narrow]:
    """Yield a migrated database in which nothing is granted to everybody, and a role that has what is printed."""
    role = f"Worker {database.name}"[:60]
    await execute(
        database,
        # Functions that anybody may call would hide a grant that is missing.
        "alter default privileges revoke execute on functions from public",
        f"alter database {database.name} set track_functions = 'pl'",
        f"create role {quoted(role)} login",
        f"alter role {quoted(role)} set search_path to ''",
        TABLES,
        f"grant select, insert on public.seen, public.log, public.fixed to {quoted(role)}",
        f"grant select on public.theirs, public.theirs_position_seq to {quoted(role)}",
    )
    await migrate(database.dsn, SCHEMA)
    await execute(database, grants(role, SCHEMA))
    try:
        yield Narrow(database, role)
    finally:
        await execute(database, f"drop owned by {quoted(role)}", f"drop role {quoted(role)}")


async def test_everything_works_with_the_printed_rights(empty_database: Database) -> None:
    """Worker, keeper, retries, take-over, idle removal, holds, append, import and every command work, every function of
    the schema is called, and there is no right that nothing uses.
    """
    async with narrowed(empty_database) as narrow:
        await commands_before_a_worker(narrow)
        await workers_and_a_take_over(narrow)
        await commands_beside_failures(narrow)
        await what_has_no_command(narrow)
        await assert_sound(narrow.database, SCHEMA)
        schema = str(quoted(SCHEMA))
        await until_value(narrow.database, NOT_CALLED.replace("$1", f"'{schema}'"), [], 10)
        unused = NOT_USED.replace("$1", f"'{SCHEMA}'").replace("$2", f"'{narrow.role}'")
        await until_value(narrow.database, unused, [], 10)


async def commands_before_a_worker(narrow: Narrow) -> None:
    """Import, declare, and handle all that can be, without a worker process."""
    line = b'{"stream": "%s", "type": "Happened", "data": {%s}}\n'
    log = line % (b"good", b"") + line % (b"bad", b'"fail": true') + line % (b"doomed", b'"doom": true')
    narrow.run("import", "-", stdin=log)
    narrow.run("setup", APP)
    narrow.run("boot", APP, code=1)
    narrow.run("run", APP)
    assert await value(narrow.database, "select count(*) from public.log") == 3


async def workers_and_a_take_over(narrow: Narrow) -> None:
    """Two workers are killed in the middle of an event, and another goes on; idle keys are removed in passing."""
    with fleet(narrow.dsn) as workers:
        await narrow.append(("waits", {"wait": True}), ("busy", {"busy": True}))
        for _ in range(2):
            async with narrow.database.connection() as gate:
                await gate.execute("select pg_advisory_lock($1)", GATE)
                killed = workers.start("narrow:app", variables=VARIABLES)
                await until_value(narrow.database, "select count(*) from pg_locks where not granted", 1)
                killed.kill()
        other = workers.start("narrow:app", variables=VARIABLES)
        await until_value(narrow.database, "select count(*) from public.seen", 3)
        removed = f"select count(*) from {quoted(SCHEMA)}.partitions where key = 'good'"
        await until_value(narrow.database, removed, 0)
        other.terminate()
        assert other.wait() <= 1, other.text()
        assert "permission denied" not in other.text()


async def commands_beside_failures(narrow: Narrow) -> None:
    """Look at what failed, skip one, try the other again, pass over an event without a usable key."""
    assert "doomed" in narrow.run("failures", "list").out
    narrow.run("failures", "show", "keys#doomed")
    narrow.run("failures", "skip", "keys#doomed", "--why", "it is doomed")
    await execute(narrow.database, "insert into public.fixed values (1)")
    narrow.run("failures", "resume", "keys#bad", "--why", "fixed")
    narrow.run("run", APP)
    await narrow.append(("x" * 1001, {}))
    narrow.run("run", APP, code=1)
    last = await value(narrow.database, f"select max(position) from {quoted(SCHEMA)}.events")
    narrow.run("skip", "keys", "--position", str(last))
    narrow.run("worker", APP, "--until-caught-up", "--timeout", "30")
    narrow.run("wait", "keys", "--timeout", "20")
    assert narrow.run("status", "keys", "--partitions").out.startswith("keys  active")


async def an_owner_that_lives(narrow: Narrow, session: Session) -> None:
    """Renew a lease, and take back what was counted against a key: workers do the one only when work takes long, the
    other only when the database fails them in the middle.
    """
    leases, owner = f"{quoted(SCHEMA)}.leases", uuid4()
    values = f"values (1, 1, '{owner}', 'w', 1, 1, now())"
    await execute(narrow.database, f"insert into {leases} (id, run, owner, worker, parts, events, expires_at) {values}")
    assert await session.fetchval(session.queries.renew, [1], owner, timedelta(seconds=1)) == 1
    await session.execute(session.queries.absolve, 1, owner, 0)
    await execute(narrow.database, f"delete from {leases}")


async def what_has_no_command(narrow: Narrow) -> None:
    """A condition on an append, a key that is held while it gets work, somebody else's event table, plain SQL."""
    async with EventStore.connect(narrow.dsn, schema=SCHEMA) as store:
        head = await store.head()
        decision = AppendCondition(tags=["a:1"], after=head)
        await store.append("decided", [NewEvent("Happened", {}, tags=["a:1"])], condition=decision)
        await store.read_for_append(["a:1"])
    async with await Pool.open(narrow.dsn, schema=SCHEMA, max_size=1) as pool:
        run = Run(await value(narrow.database, f"select run from {quoted(SCHEMA)}.subscriptions where name = 'keys'"))
        await hold_key(pool, run, PartitionKey("held"))
        await narrow.append(("held", {}))
        narrow.run("run", APP)
        assert await unhold_key(pool, run, PartitionKey("held"))
        narrow.run("run", APP)
        async with pool.session() as session:
            for data in ("data", "more"):
                theirs = TableMapping("theirs", data=data)
                await save_source(session, await inspect_table(session, theirs))
            assert await session.fetchval(f"select {quoted(SCHEMA)}.text_of_v1('x')") == "x"
            await session.execute(session.queries.release, [], uuid4())
            await an_owner_that_lives(narrow, session)
            await session.execute(
                f"insert into {quoted(SCHEMA)}.events (stream, version, type, data) values ('plain', 1, 'T', '{{}}')"
            )
            assert await session.fetchval(f"select count(*) from {quoted(SCHEMA)}.stats_v1") == 2
    narrow.run("run", APP)


RIGHTS = {
    "usage on schema {schema}": ["status"],
    "select on {schema}.migrations": ["status"],
    "select on {schema}.events": ["status"],
    "insert on {schema}.events": ["import", "-"],
    "select on sequence {schema}.events_position_seq": ["status"],
    "usage on sequence {schema}.runs": ["setup", "support.apps.narrow:late"],
    "execute on all functions in schema {schema}": ["import", "-"],
}


async def test_each_right_that_leaves_no_trace_is_needed(empty_database: Database) -> None:
    """Without one of them a command ends with 2 and one message that says what to do; with it again it works."""
    event = b'{"stream": "s", "type": "T", "data": {}}\n'
    async with narrowed(empty_database) as narrow:
        for right, command in RIGHTS.items():
            named = right.format(schema=quoted(SCHEMA))
            await execute(narrow.database, f"revoke {named} from {quoted(narrow.role)}")
            refused = narrow.run(*command, code=2, stdin=event)
            assert refused.err.count("error: ") == 1, refused
            assert "Traceback" not in refused.err
            assert any(words in refused.err for words in ("--grants", "grant it SELECT", "headrace migrate")), refused
            await execute(narrow.database, f"grant {named} to {quoted(narrow.role)}")
            narrow.run(*command, stdin=event)
        async with await Pool.open(narrow.dsn, schema=SCHEMA, max_size=1) as pool, pool.session() as session:
            await execute(narrow.database, f"revoke select on {quoted(SCHEMA)}.stats_v1 from {quoted(narrow.role)}")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await session.for_user().execute(f"select from {quoted(SCHEMA)}.stats_v1")


NAMES = ["HeadRace", 'the "log"', "O'Brien", "100%s", "back\\slash", "{{events}}"]


@pytest.mark.parametrize("schema", NAMES)
async def test_a_schema_of_any_name(empty_database: Database, schema: str) -> None:
    """Whatever PostgreSQL takes as a name: the schema is made, events go in, statistics and status come out."""
    variables = {"schema": schema}
    line = b'{"stream": "s", "type": "T", "data": {}}\n'
    for arguments in (["migrate"], ["import", "-"], ["setup", APP], ["status"]):
        outcome = headrace(*arguments, dsn=empty_database.dsn, stdin=line, cwd=TESTS, variables=variables)
        assert outcome.code == 0, outcome
    found = await rows(empty_database, f"select head from {quoted(schema)}.stats_v1")
    assert found == [(1,), (1,)]
    await assert_sound(empty_database, schema)


def test_a_schema_name_that_cannot_be(empty_database: Database) -> None:
    """A name that would end the text of a function is refused before anything is made."""
    outcome = headrace("migrate", dsn=empty_database.dsn, variables={"schema": "a$$b"})
    assert (outcome.code, "cannot be the name of the schema" in outcome.err) == (2, True), outcome
