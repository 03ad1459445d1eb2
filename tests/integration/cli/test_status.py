"""`headrace status` and `headrace skip`: figures, reasons, and passing an event over that no key can be made for."""

import json
from typing import Any

import pytest

from support.commands import Outcome, headrace
from support.databases import Database
from support.fleet import TESTS

APP = "support.apps.cli_shop:app"
KEYED = "support.apps.cli_keys:app"


def log(*events: tuple[str, dict[str, Any]]) -> bytes:
    """Return a log of (stream, data) pairs."""
    return b"".join(json.dumps({"stream": s, "type": "T", "data": d}).encode() + b"\n" for s, d in events)


def cli(database: Database, *arguments: str, stdin: bytes = b"") -> Outcome:
    """Run a command where the test's application can be imported."""
    return headrace(*arguments, dsn=database.dsn, stdin=stdin, cwd=TESTS)


def work(database: Database, app: str = APP, *arguments: str) -> Outcome:
    """Run a worker until all that can be handled is."""
    return cli(database, "worker", app, "--until-caught-up", "--timeout", "30", "--metrics-port", "0", *arguments)


def words(text: str) -> str:
    """Return a text with single blanks."""
    return " ".join(text.split())


def test_status_of_an_empty_database(database: Database) -> None:
    """Before anything is set up the status says how to begin; a script gets empty lists."""
    text = cli(database, "status")
    data = cli(database, "status", "-o", "json")

    assert (text.code, data.code) == (0, 0)
    assert "headrace worker" in text.out
    assert data.json == {"subscriptions": [], "workers": [], "horizon": {"held_by": None, "problem": None}}


def test_figures_and_reasons(database: Database) -> None:
    """One line a subscription: status, position, what is parked, the inbox, the lag; beneath it why it stands."""
    cli(database, "import", "-", stdin=log(("a", {}), ("bad", {"doom": True}), ("bad", {}), ("b", {})))
    work(database)
    cli(database, "import", "-", stdin=log(*[("c", {"n": n}) for n in range(5)]))

    outcome = cli(database, "status", "orders")

    assert outcome.code == 0
    first, *notes = outcome.out.splitlines()
    assert words(first).startswith("orders ")
    assert "4 (parked: 1)" in words(first)
    assert "unrouted: 5 inbox: 2 in 0" in words(first)
    assert "1 key parked: `headrace failures list orders`" in outcome.out
    assert "no live worker works on it" in outcome.out
    assert all(note.startswith("  ") for note in notes)


def test_partitions(database: Database) -> None:
    """--partitions lists those with work, furthest behind first, with what each waits for, at most --limit."""
    cli(database, "import", "-", stdin=log(("bad", {"doom": True}), ("worse\x1b[2J", {"doom": True}), ("bad", {})))
    work(database)

    text = cli(database, "status", "orders", "--partitions")
    data = cli(database, "status", "orders", "--partitions", "--limit", "1", "-o", "json").json

    assert "#bad at 0 2 events waiting" in words(text.out)
    assert "#worse\\x1b[2J at 0 1 event waiting" in words(text.out)
    assert "\x1b" not in text.out
    (only,) = data["subscriptions"][0]["partitions"]
    assert (only["key"], only["backlog"], only["failure"], only["hold"]) == ("bad", 2, "waiting", None)


def test_json_has_the_published_columns(database: Database) -> None:
    """Scripts get every column of stats_v1 under its name, the sum `inbox`, and the reasons."""
    cli(database, "import", "-", stdin=log(("a", {})))
    work(database)

    orders, totals = cli(database, "status", "-o", "json").json["subscriptions"]

    published = (
        "subscription app group_name status status_reason position head horizon_held_seconds unrouted held inboxed "
        "waiting in_flight oldest_seconds pending_partitions touched_partitions largest_partition parked next_due_at "
        "arrivals_total processed_total busy_seconds_total workers capacity sampled_at"
    )
    assert set(published.split()) | {"inbox", "backlog", "reasons", "standing", "kind"} <= set(orders)
    assert (orders["subscription"], orders["inbox"], orders["standing"], orders["reasons"]) == (
        "orders",
        0,
        "caught up",
        [],
    )
    assert totals["partitioned"] is False


async def test_a_held_line_names_its_holder(database: Database) -> None:
    """An open append delays what is above it: status names its application and its pid."""
    cli(database, "import", "-", stdin=log(("a", {})))
    work(database)
    async with database.connection(server_settings={"application_name": "slow-import"}) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("insert into headrace.events (stream, version, type, data) values ('h', 1, 'T', '{}')")
        pid = await connection.fetchval("select pg_backend_pid()")
        text = cli(database, "status", "orders")
        data = cli(database, "status", "-o", "json").json
        await transaction.rollback()

    assert "open append" in text.out
    assert f"pid {pid}" in text.out
    assert "slow-import" in text.out
    assert data["horizon"]["held_by"]["application"] == "slow-import"


async def test_a_table_that_cannot_be_read_exactly(database: Database) -> None:
    """A sequence with CACHE 50 can lose events: status shows what it has, names the fix, and ends with 2."""
    cli(database, "setup", APP)
    async with database.connection() as connection:
        await connection.execute("alter sequence headrace.events_position_seq cache 50")

    outcome = cli(database, "status")

    assert outcome.code == 2
    assert "orders" in outcome.out
    assert "cache 1" in outcome.err


def test_an_unknown_name(database: Database) -> None:
    """A name that is not there is a usage error that lists those that are."""
    cli(database, "setup", APP)
    outcome = cli(database, "status", "order")

    assert outcome.code == 2
    assert "there is orders, totals" in outcome.err


async def test_skip_passes_an_event_that_has_no_key(database: Database) -> None:
    """A partitioner that raises stops the main before the event; skip passes exactly that event, audited."""
    cli(database, "import", "-", stdin=log(("a", {}), ("b", {"nokey": True}), ("c", {})))
    stopped = work(database, KEYED)
    standing = cli(database, "status", "keyed")
    wrong = cli(database, "skip", "keyed", "--position", "3")
    skipped = cli(database, "skip", "keyed", "--position", "2", "--why", "made by a test", "-o", "json")
    went_on = work(database, KEYED)

    assert stopped.code == 1
    assert "an event has no usable key" in standing.out
    assert (wrong.code, "3 is not the next event that keyed wants" in wrong.err) == (2, True)
    assert (skipped.code, skipped.json) == (0, {"subscription": "keyed", "skipped": 2})
    assert went_on.code == 0, went_on
    async with database.connection() as connection:
        assert [row[0] for row in await connection.fetch("select key from keyed order by 1")] == ["a", "c"]
        audit = await connection.fetchrow("select verb, subscription, position, why, before from headrace.audit")
    assert audit is not None
    assert tuple(audit)[:4] == ("skip", "keyed", 2, "made by a test")
    assert json.loads(audit["before"])["status"] == "error"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["orders", "--position", "1"], "only while the subscription stands still"),
        (["totals", "--position", "1"], "`headrace failures skip totals`"),
        (["nothing", "--position", "1"], "there is no subscription 'nothing'"),
        (["orders#a", "--position", "1"], "'#' separates"),
        (["orders"], "--position"),
    ],
)
def test_skip_refuses_what_it_is_not_for(database: Database, arguments: list[str], message: str) -> None:
    """A subscription at work, one without keys, an unknown one: exit code 2, and what to do instead."""
    cli(database, "setup", APP)
    outcome = cli(database, "skip", *arguments)

    assert outcome.code == 2
    assert message in words(outcome.err)
