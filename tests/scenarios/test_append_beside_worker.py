"""An append pays nothing for being read: not even beside a worker that routes and projects what it appends."""

import re

from headrace import App, Connection, Event, Stream, batch, projector, setup
from support.databases import Database
from support.invariants import assert_sound
from support.scenes import options, serving, until_value, value
from support.statements import Statements

INSERT = "insert into headrace.events (stream, version, type, data) values ('{stream}', {version}, 'Happened', '{{}}')"
FUNCTION = """
    select * from headrace.append_v1(array['{stream}'], array['Happened'], array['{{}}'], null, null, null, null,
                                     array['{stream}'], array[{version} - 1], null, null, null)
"""
LOCKS = """
    select locktype, relation::regclass::text as relation, mode from pg_locks
     where pid = $1 and locktype <> 'virtualxid'
"""
ADVISORY = "select count(*) from pg_locks where locktype = 'advisory'"
SIGNALS = re.compile(r"\b(listen|notify|pg_notify|pg_(try_)?advisory\w*)\b", re.IGNORECASE)


@projector("busy", partition_by=Stream())
class Busy:
    """Counts events."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model."""
        await db.execute("create table busy (events int not null)")

    @batch()
    async def count(self, events: list[Event], db: Connection) -> None:
        """Write down how many there were."""
        await db.execute("insert into busy values ($1)", len(events))


async def price_of(database: Database, prefix: str) -> list[object]:
    """Return locks and plan of an append by INSERT and by the function, seen while each is open, and commit them.

    In a session of their own, because what a session has planned before shows in its locks.
    """
    seen: list[object] = []
    async with database.connection() as appender, database.connection() as other:
        for place, form in enumerate((INSERT, FUNCTION)):
            stream = f"{prefix}{place}"
            await appender.execute(form.format(stream=stream, version=1))
            async with appender.transaction():
                await appender.execute(form.format(stream=stream, version=2))
                seen.append({tuple(row) for row in await other.fetch(LOCKS, appender.get_server_pid())})
            explain = "explain (analyze, verbose, costs off, timing off, summary off) "
            plan = await appender.fetch(explain + form.format(stream=stream, version=3))
            seen.append([row[0].replace(stream, "s") for row in plan])
    return seen


async def test_an_append_is_the_same_beside_a_worker(database: Database) -> None:
    """With and without a worker that projects it, an open append has the same locks, none advisory, and the same plan.

    The worker listens to nothing, notifies nobody and takes no advisory lock; nothing fires on the table.
    """
    statements = Statements()
    alone = await price_of(database, "alone")
    async with serving(App(Busy(), name="busy"), database, statements.heard_by(options())):
        await until_value(database, "select sum(events)::int from busy", 6)
        beside = await price_of(database, "beside")
        advisory = await value(database, ADVISORY)
        await until_value(database, "select sum(events)::int from busy", 12)
    triggers = await value(database, "select count(*) from pg_trigger where tgrelid = 'headrace.events'::regclass")
    queued = await value(database, "select pg_notification_queue_usage()")
    assert beside == alone
    assert alone[0]
    assert {kind for locks in alone[::2] for kind, *_ in locks} == {"relation", "transactionid"}  # type: ignore[attr-defined]
    assert (advisory, triggers, queued) == (0, 0, 0)
    assert statements.texts
    assert [text for text in statements.texts if SIGNALS.search(text)] == []
    await assert_sound(database)
