"""Commands that name a subscription look at the event table that it reads, also where that is not ours.

Our own table holds other events under the same positions, so a look at the wrong one shows.
"""

import asyncio
import json

import pytest

from support.commands import Outcome, headrace
from support.databases import Database
from support.fleet import TESTS
from support.scenes import execute

APP = "support.apps.mapped:app"
JOURNAL = """
    create table journal (id bigint generated always as identity primary key, entity text, revision int, what text,
                          body json, happened timestamptz default now());
    insert into journal (entity, revision, what, body) values
        ('tea', 1, 'Bought', '{"region": "north"}'), ('milk', 1, 'Bought', '{}'),
        ('milk', 2, 'Spilt', '{"region": "south", "doom": true}'), ('tea', 2, 'Drunk', '{"region": "north"}');
    insert into headrace.events (stream, version, type, data)
    select 'ours', n, 'Other', '{"region": "west"}' from generate_series(1, 9) n
"""
OPEN = "insert into journal (entity, revision, what, body) values ('open', 1, 'Bought', '{\"region\": \"north\"}')"


@pytest.fixture
def journal(database: Database) -> Database:
    """A database with a journal of somebody else's."""
    asyncio.run(execute(database, JOURNAL))
    return database


def cli(database: Database, *arguments: str) -> Outcome:
    """Run a command where the test's application can be imported."""
    return headrace(*arguments, dsn=database.dsn, cwd=TESTS)


def work(database: Database, name: str, timeout: float = 30) -> Outcome:
    """Handle all that can be of one subscription."""
    return cli(
        database, "worker", APP, "--subscriber", name, "--until-caught-up", "--timeout", f"{timeout}",
        "--metrics-port", "0",
    )  # fmt: skip


async def test_wait_counts_in_the_mapped_table(journal: Database) -> None:
    """Waiting ends when what lies in the mapped table is handled, whatever lies in ours, and not before."""
    async with journal.connection() as connection:
        await connection.execute("delete from journal where entity = 'milk'")
        handled = work(journal, "by_entity")
        waited = cli(journal, "wait", "by_entity", "--timeout", "20")
        await connection.execute(OPEN)
        late = cli(journal, "wait", "by_entity", "--timeout", "0.3")
    assert handled.code == 0, handled
    assert waited.code == 0, waited
    assert late.code == 4
    assert "has not reached position 5" in late.err


async def test_skip_passes_over_an_event_of_the_mapped_table(journal: Database) -> None:
    """The next wanted event is that of the mapped table, by its positions."""
    async with journal.connection() as connection:
        await connection.execute("update journal set id = default where entity = 'milk'")
        await connection.execute("delete from headrace.events where position <= 5")
        stopped = work(journal, "by_region")
        wrong = cli(journal, "skip", "by_region", "--position", "6")
        skipped = cli(journal, "skip", "by_region", "--position", "5")
        went_on = work(journal, "by_region")
    assert stopped.code == 1, stopped
    assert wrong.code == 2
    assert "6 is not the next event" in wrong.err
    assert skipped.code == 0, skipped
    assert went_on.code == 0, went_on


async def test_failures_name_the_event_of_the_mapped_table(journal: Database) -> None:
    """List and show tell type and stream as they stand in the mapped table."""
    assert work(journal, "by_entity").code == 1
    listed = json.loads(cli(journal, "failures", "list", "-o", "json").out)
    shown = cli(journal, "failures", "show", "by_entity#milk")
    assert [(one["position"], one["event_type"], one["stream"]) for one in listed] == [(3, "Spilt", "milk")]
    assert "Spilt" in shown.out


async def test_a_held_line_of_the_mapped_table_names_its_holder(journal: Database) -> None:
    """Status says of each subscription who holds the line of its own table; a worker that cannot end says it, too."""
    cli(journal, "setup", APP)
    async with journal.connection(server_settings={"application_name": "slow-journal"}) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(OPEN)
        async with journal.connection() as other:
            await other.execute(OPEN)
        late = work(journal, "by_entity", timeout=3)
        status = cli(journal, "status", "by_entity")
        data = cli(journal, "status", "-o", "json").json
        await transaction.rollback()
    assert late.code in {1, 4}
    assert "slow-journal" in status.out
    assert data["horizon"]["held_by"] is None
    assert any("slow-journal" in reason for one in data["subscriptions"] for reason in one["reasons"])


async def test_a_mapped_table_that_cannot_be_read_exactly(journal: Database) -> None:
    """A CACHE of the mapped table's sequence is named with the fix by whoever looks at its line; ours is as it was."""
    cli(journal, "setup", APP)
    await execute(journal, "alter sequence journal_id_seq cache 50")
    status, waited = cli(journal, "status"), cli(journal, "wait", "by_entity", "--timeout", "1")
    for outcome in (status, waited):
        assert outcome.code == 2
        assert "alter sequence public.journal_id_seq cache 1" in " ".join(outcome.err.split())
    assert "by_entity" in status.out


def test_status_says_what_is_different_about_a_mapped_table(journal: Database) -> None:
    """Without a time of the append, ages are told from another column, or not: status says so to all."""
    cli(journal, "setup", APP)
    note = "public.journal has no appended_at: lag and ages are told from 'happened'"
    text = cli(journal, "status", "by_entity").out
    assert note in " ".join(text.split())
    notes = {one["subscription"]: one["notes"] for one in cli(journal, "status", "-o", "json").json["subscriptions"]}
    assert notes == {"by_entity": [note], "by_region": [note]}


async def test_a_mapped_table_that_is_gone(journal: Database) -> None:
    """Its subscriptions cannot be waited for: exit code 2, and the message says which table and what to do."""
    cli(journal, "setup", APP)
    async with journal.connection() as connection:
        await connection.execute("drop table journal")
    outcome = cli(journal, "wait", "by_entity", "--timeout", "1")
    assert outcome.code == 2
    assert "the event table public.journal of by_entity" in outcome.err
    assert "headrace refresh" in outcome.err
