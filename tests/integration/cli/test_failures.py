"""`headrace failures`: what failed and why, tried again or skipped, by people and by scripts."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from support import databases
from support.commands import Outcome, headrace
from support.databases import Database
from support.fleet import TESTS

APP = "support.apps.cli_shop:app"


def line(stream: str, **data: Any) -> bytes:
    """Return one line of a log."""
    return json.dumps({"stream": stream, "type": "Order placed", "data": data}).encode() + b"\n"


LOG = (
    line("good") + line("bad", fail=True) + line("bad") + line("bad") + line("worse\x1b[31m", doom=True) + line("good")
)


def cli(database: Database, *arguments: str, stdin: bytes = b"") -> Outcome:
    """Run a command where the test's application can be imported."""
    return headrace(*arguments, dsn=database.dsn, stdin=stdin, cwd=TESTS)


@pytest.fixture(scope="module")
def prepared(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database with two failing keys: `bad` is parked after its retries, the other waits for a person at once."""
    version = databases.default_version().removeprefix("pg")
    cluster = request.getfixturevalue(f"cluster{version}")
    with databases.cloned(cluster, request.getfixturevalue(f"template{version}"), "failures") as database:
        cli(database, "import", "-", stdin=LOG)
        work(database)
        yield database


@pytest.fixture
def failed(prepared: Database, request: pytest.FixtureRequest) -> Iterator[Database]:
    """The same, for one test alone."""
    with databases.cloned(prepared.cluster, prepared.name, request.node.name) as database:
        yield database


def work(database: Database) -> None:
    """Handle all that can be; some key keeps failing, which is exit code 1."""
    outcome = cli(database, "worker", APP, "--until-caught-up", "--timeout", "30", "--metrics-port", "0")
    assert outcome.code == 1, outcome


async def seen(database: Database) -> list[tuple[str, int]]:
    """Return what the read model holds."""
    async with database.connection() as connection:
        return [tuple(row) for row in await connection.fetch("select key, version from seen order by 1, 2")]


async def fix(database: Database) -> None:
    """Repair what made `bad` fail."""
    async with database.connection() as connection:
        await connection.execute("alter table fixed add x int; insert into fixed values (1)")


def test_list_names_keys_states_and_errors(failed: Database) -> None:
    """One line a key: where it stands, what it waits for, how much waits behind it, the error's first line."""
    outcome = cli(failed, "failures", "list")

    assert outcome.code == 0
    bad, worse = outcome.out.splitlines()
    assert bad.startswith("orders#bad")
    assert worse.startswith("orders#worse\\x1b[31m")
    for part in ("parked", "at 2", "Order placed", "2 attempts", "3 waiting", "next try in ", "not fixed yet"):
        assert part in bad
    assert "this event is doomed" in worse
    assert "two lines" not in worse
    assert "\x1b" not in outcome.out


def test_list_for_scripts(failed: Database) -> None:
    """The JSON has stable names and typed values; names and states choose."""
    everything = cli(failed, "failures", "list", "-o", "json").json
    none = cli(failed, "failures", "list", "totals", "-o", "json").json
    waiting = cli(failed, "failures", "list", "--state", "waiting", "-o", "json").json

    assert [(f["subscription"], f["key"], f["state"], f["waiting"]) for f in everything] == [
        ("orders", "bad", "parked", 3),
        ("orders", "worse\x1b[31m", "waiting", 1),
    ]
    assert list(everything[0]) == [
        "subscription", "key", "state", "position", "event_type", "stream", "attempts", "class", "error_type",
        "error", "first_failed_at", "failed_at", "next_retry_at", "waiting",
    ]  # fmt: skip
    assert datetime.fromisoformat(everything[0]["next_retry_at"]).tzinfo is not None
    assert (none, waiting) == ([], everything[1:])


def test_nothing_fails(database: Database) -> None:
    """With an empty ledger the list says so, and a script gets an empty list."""
    assert cli(database, "failures", "list").out == "no key fails\n"
    assert cli(database, "failures", "list", "-o", "json").json == []


def test_a_long_list_is_cut_and_says_so(failed: Database) -> None:
    """--limit bounds what is printed; that there is more goes to standard error."""
    outcome = cli(failed, "failures", "list", "--limit", "1")

    assert len(outcome.out.splitlines()) == 1
    assert "there are more than 1" in outcome.err


def test_show_has_the_whole_error(failed: Database) -> None:
    """Command show prints every line of the error; by NAME#KEY or by --key."""
    by_address = cli(failed, "failures", "show", "orders#worse\x1b[31m")
    by_option = cli(failed, "failures", "show", "orders", "--key", "bad", "-o", "json")

    assert "and says so in two lines" in by_address.out
    assert "\x1b" not in by_address.out
    assert by_option.json["error_type"].endswith("ValueError")


async def test_resume_after_a_fix(failed: Database) -> None:
    """Command resume makes the key due with a fresh budget; after the fix all that waited is handled, in order."""
    await fix(failed)
    resumed = cli(failed, "failures", "resume", "orders#bad", "--why", "fixed in 1.4")
    work(failed)

    assert (resumed.code, resumed.out) == (0, "1 key will be tried again now\n")
    assert [entry for entry in await seen(failed) if entry[0] == "bad"] == [("bad", 1), ("bad", 2), ("bad", 3)]
    async with failed.connection() as connection:
        audit = await connection.fetchrow("select who, verb, why from headrace.audit")
    assert audit is not None
    assert ("@" in audit["who"], audit["why"]) == (True, "fixed in 1.4")


async def test_skip_drops_the_event_and_goes_on(failed: Database) -> None:
    """Command skip drops the failing event alone; what waited behind it is handled, the ledger is empty of it."""
    wrong = cli(failed, "failures", "skip", "orders#bad", "--position", "3")
    skipped = cli(failed, "failures", "skip", "orders#bad", "--position", "2", "-o", "json")
    work(failed)

    assert (wrong.code, "fails at position 2, not at 3" in wrong.err) == (2, True)
    assert (skipped.code, skipped.json) == (0, {"subscription": "orders", "key": "bad", "skipped": 2})
    assert [entry for entry in await seen(failed) if entry[0] == "bad"] == [("bad", 2), ("bad", 3)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "orders#nothing"], "orders#nothing has no failure"),
        (["skip", "orders#nothing"], "orders#nothing has no failure"),
        (["skip", "orders#a", "--key", "b"], "leave out --key"),
        (["show", "orders"], "the key is missing: write orders#KEY"),
        (["skip", "orders"], "the key is missing: write orders#KEY"),
        (["resume"], "say which keys: NAME, NAME#KEY, or --all"),
        (["resume", "orders", "--all"], "say which keys"),
        (["list", "--state", "sad"], "sad"),
        (["resume", "nosuch"], "there is no subscription 'nosuch'"),
    ],
)
def test_usage_errors(failed: Database, arguments: list[str], message: str) -> None:
    """What cannot be done is exit code 2 and one message that names the fix."""
    outcome = cli(failed, "failures", *arguments)

    assert outcome.code == 2
    assert message in " ".join(outcome.err.split())


async def test_resume_all(failed: Database) -> None:
    """--all resumes every failing key of the database."""
    outcome = cli(failed, "failures", "resume", "--all", "-o", "json")

    assert outcome.json == {"resumed": 2, "leased": 0}
