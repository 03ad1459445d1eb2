"""`headrace setup`, `boot`, `run` and `wait`: exit codes, output for people and for scripts."""

import json
import signal
from collections.abc import Mapping
from typing import Any

import pytest

from support.commands import Outcome, headrace, started
from support.databases import Database
from support.fleet import TESTS

APP = "support.apps.cli_shop:app"


def lines(count: int, **data: Any) -> bytes:
    """Return a log of ten streams."""
    return b"".join(
        json.dumps({"stream": f"s-{n % 10}", "type": "T", "data": {"n": n} | data}).encode() + b"\n"
        for n in range(count)
    )


def cli(database: Database, *arguments: str, stdin: bytes = b"", variables: Mapping[str, str] | None = None) -> Outcome:
    """Run a command where the test's application can be imported."""
    return headrace(*arguments, dsn=database.dsn, stdin=stdin, cwd=TESTS, variables=variables)


async def seen(database: Database) -> int:
    """Return how many events are in the read model."""
    async with database.connection() as connection:
        return int(await connection.fetchval("select count(*) from seen"))


async def test_setup_boot_run(database: Database) -> None:
    """Step by step: setup declares and decides, boot brings history in, run handles what came later; each ends 0."""
    cli(database, "import", "-", stdin=lines(50))

    setup = cli(database, "setup", APP)
    boot = cli(database, "boot", APP, "--output", "json")
    cli(database, "import", "-", stdin=lines(80))
    ran = cli(database, "run", APP, "orders", "-o", "json")

    assert (setup.code, setup.out, setup.err) == (0, "setup: done\n", "")
    assert (boot.code, boot.json) == (0, {"processed": 50, "has_pending": False, "all_locked": False, "errors": []})
    assert (ran.code, ran.json["processed"]) == (0, 30)
    assert await seen(database) == 80


async def test_a_limit_that_leaves_work_is_code_4(database: Database) -> None:
    """--limit ends at the next boundary: what was handled is stored, exit code 4 says that work is left."""
    cli(database, "import", "-", stdin=lines(200))
    cli(database, "setup", APP)

    part = cli(database, "boot", APP, "--limit", "40")
    rest = cli(database, "boot", APP)

    assert part.code == 4
    assert "work is left" in part.out
    assert 0 < int(part.out.split()[1]) < 200
    assert rest.code == 0
    assert await seen(database) == 200


def test_errors_in_the_result_are_code_1(database: Database) -> None:
    """A key that fails is named on standard error with its error; the others are handled, the exit code is 1."""
    cli(database, "import", "-", stdin=lines(20) + b'{"stream":"bad","type":"T","data":{"doom":true}}')
    cli(database, "setup", APP)

    outcome = cli(database, "boot", APP)

    assert (outcome.code, outcome.out) == (1, "boot: 20 events handled\n")
    assert "error: orders#bad: " in outcome.err
    assert "this event is doomed" in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        (["run"], {}, "give APP as module:attribute, or set HEADRACE_APP"),
        (["run", "orders"], {}, "give APP as module:attribute, or set HEADRACE_APP"),
        (["run", "nowhere.at_all:app"], {}, "no module 'nowhere.at_all'"),
        (["run", "support.apps.cli_shop:missing"], {}, "has no 'missing': the apps in it are"),
        (["run", "support.apps.cli_shop:not_an_app"], {}, "not an App"),
        (["run", APP, "nothing"], {}, "'nothing'"),
        (["run", "nothing"], {"app": APP}, "'nothing'"),
        (["setup", "--app", APP, "orders"], {"lanes": "many"}, "HEADRACE_LANES"),
        (["wait", "nothing"], {}, "there is no subscription 'nothing'"),
        (["wait", "a#b", "--key", "c"], {}, "leave out --key"),
        (["worker"], {}, "HEADRACE_APP"),
        (["worker", APP, "--subscriber", "nothing"], {}, "'nothing'"),
        (["worker", APP, "--timeout", "3"], {}, "--until-caught-up"),
        (["worker", APP, "--lanes", "0"], {}, "--lanes (HEADRACE_LANES)"),
    ],
)
def test_usage_errors_name_the_fix(
    database: Database, arguments: list[str], variables: dict[str, str], message: str
) -> None:
    """Whatever is wrong with the call is exit code 2 and one message; nothing of the database is touched."""
    outcome = cli(database, *arguments, variables=variables)

    assert outcome.code == 2
    assert message in " ".join(outcome.err.split())
    assert "Traceback" not in outcome.err


def test_a_subscription_of_somebody_else_is_refused(database: Database) -> None:
    """One database, two applications: the second one to declare a name is refused, and told who owns it."""
    cli(database, "setup", APP)

    outcome = cli(database, "setup", "support.apps.cli_shop:other")

    assert outcome.code == 2
    assert "cli_shop" in outcome.err


def test_wait_ends_when_all_is_handled(database: Database) -> None:
    """Command wait ends 0 once everything, a position, or a key's events are handled; it needs no application."""
    cli(database, "import", "-", stdin=lines(50))
    cli(database, "setup", APP)
    cli(database, "boot", APP)

    outcomes = [
        cli(database, "wait", "orders", "--timeout", "20"),
        cli(database, "wait", "orders", "--position", "10", "--timeout", "20"),
        cli(database, "wait", "orders#s-3", "--timeout", "20"),
        cli(database, "wait", "orders", "--key", "s-3", "--timeout", "20", "-o", "json"),
    ]

    assert [outcome.code for outcome in outcomes] == [0, 0, 0, 0]
    assert outcomes[0].out.startswith("orders: caught up (")
    assert outcomes[1].out.startswith("orders: at position 10 or further (")
    assert outcomes[3].json["key"] == "s-3"


def test_wait_that_is_not_finished_says_what_stands_in_the_way(database: Database) -> None:
    """A parked key keeps wait from its end: exit code 4, the message names position and key."""
    cli(database, "import", "-", stdin=lines(20) + b'{"stream":"bad","type":"T","data":{"doom":true}}')
    cli(database, "setup", APP)
    cli(database, "boot", APP)

    outcome = cli(database, "wait", "orders", "--timeout", "0.3")

    assert outcome.code == 4
    assert "has not reached position 21 in 0.3 s" in outcome.err
    assert "key 'bad' is parked" in outcome.err


def test_one_shot_commands_do_not_wait_for_a_database(database: Database) -> None:
    """Setup, boot, run and wait end with 3 when the database is down: a job or a person decides what next."""
    down = "postgresql://u@127.0.0.1:1/d"
    outcomes = [headrace(*call, dsn=down, cwd=TESTS) for call in (["run", APP], ["setup", APP], ["wait", "orders"])]

    assert [outcome.code for outcome in outcomes] == [3, 3, 3]
    assert all("cannot be reached" in outcome.err for outcome in outcomes)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_ends_a_run_and_frees_its_keys(database: Database, number: int, code: int) -> None:
    """Ctrl-C or SIGTERM in the middle of a handler: no traceback, nothing stays leased, the event is not handled."""
    cli(database, "import", "-", stdin=lines(1, **{"await": 19}))
    cli(database, "setup", APP)
    with started("boot", APP, dsn=database.dsn, cwd=TESTS) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"awaiting\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=60)

    assert process.returncode == code
    assert b"Traceback" not in out + err
    assert await seen(database) == 0
    async with database.connection() as connection:
        assert await connection.fetchval("select count(*) from headrace.leases") == 0
