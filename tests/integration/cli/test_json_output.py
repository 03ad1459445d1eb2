"""`--output json` is stable: every document has the names that the page gives, all of them and no other."""

import json
import re
from pathlib import Path
from typing import Any

from headrace.cli import demo
from headrace.runtime.demo.verdict import Verdict
from support.commands import headrace
from support.databases import Database
from support.fleet import TESTS

PAGE = TESTS.parent / "docs" / "reference" / "json.md"
SECTION = re.compile(r"^#{2,3} (.+?)\n(.*?)(?=^#{2,3} |\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
APP = "support.apps.cli_shop:app"
KEYED = "support.apps.cli_keys:app"


def names(page: Path = PAGE) -> dict[str, set[str]]:
    """Return the names that the page gives under each heading."""
    return {title: set(ROW.findall(text)) for title, text in SECTION.findall(page.read_text("utf-8"))}


def log(*events: tuple[str, dict[str, Any]]) -> bytes:
    """Return a log of (stream, data) pairs."""
    return b"".join(json.dumps({"stream": s, "type": "T", "data": d}).encode() + b"\n" for s, d in events)


async def test_every_document_has_the_names_of_the_page(database: Database) -> None:
    """Each command is run where it has something to say; what it prints is held against docs/reference/json.md."""
    page = names()
    seen: dict[str, set[str]] = {}

    def cli(title: str, *arguments: str, stdin: bytes = b"") -> Any:
        outcome = headrace(*arguments, "-o", "json", dsn=database.dsn, stdin=stdin, cwd=TESTS)
        assert outcome.code in {0, 1}, outcome
        found = outcome.json
        seen[title] = set(found[0] if isinstance(found, list) else found)
        return found

    cli("migrate", "migrate")
    cli("import", "import", "-", stdin=log(("bad", {"doom": True}), ("worse", {"doom": True}), ("good", {})))
    run = "setup, boot, run, and worker with --until-caught-up"
    cli(run, "setup", APP)
    booted = cli(run, "boot", APP)
    seen["Each of errors"] = set(booted["errors"][0])
    cli(run, "run", APP)
    cli("wait", "wait", "orders#good", "--timeout", "20")
    listed = cli("failures list and failures show", "failures", "list")
    assert set(cli("failures list and failures show", "failures", "show", "orders#bad")) == set(listed[0])
    cli("import", "import", "-", stdin=log(("n", {"nokey": True})))
    cli(run, "worker", KEYED, "--until-caught-up", "--metrics-port", "0", "--timeout", "30")
    (keyed,) = cli("status and top", "status", "keyed")["subscriptions"]
    cli("skip", "skip", "keyed", "--position", str(keyed["position"] + 1))
    async with database.connection(server_settings={"application_name": "slow"}) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("insert into headrace.events (stream, version, type, data) values ('h', 1, 'T', '{}')")
        status = cli("status and top", "status", "--partitions")
        await transaction.rollback()
    seen["horizon"] = set(status["horizon"])
    seen["held_by"] = set(status["horizon"]["held_by"])
    orders = next(s for s in status["subscriptions"] if s["subscription"] == "orders")
    seen["Each of partitions"] = set(orders.pop("partitions")[0])
    seen["Each of subscriptions"] = set(orders)
    cli("failures skip", "failures", "skip", "orders#bad")
    cli("failures resume", "failures", "resume", "orders#worse")
    async with database.connection() as connection:
        await connection.execute(
            "insert into headrace.workers (id, app, name, version, subscriptions, lanes, beat_every)"
            " values (gen_random_uuid(), 'a', 'n', '1', '{orders}', 1, interval '1 hour')"
        )
    seen["Each of workers"] = set(cli("status and top", "status")["workers"][0])

    # A whole demonstration for six names would be dear.
    seen["demo"] = set(demo._as_json(Verdict("orders", "by key", 1, 2, 2, 0)))
    assert seen == page


def test_what_is_not_on_the_page_is_noticed(tmp_path: Path) -> None:
    """The page is read row by row: a name that is taken off it is missed."""
    page = tmp_path / "json.md"
    page.write_text(PAGE.read_text("utf-8").replace("| `resumed` |", "| resumed |"))

    assert names(page)["failures resume"] == {"leased"} != names()["failures resume"]
