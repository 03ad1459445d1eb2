"""`headrace dev`: an app at work while it is written, its database kept, nothing left running."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from headrace.embedded.processes import is_alive
from support import databases
from support.commands import headrace
from support.coroutines import run_test
from support.databases import Database
from support.projects import Dev, developing, edit, project
from support.waiting import wait_until

APP = "shop.read_models:app"
EVENTS = ("--events", "events.jsonl")
ORDER = '{"stream": "customer-cy", "type": "OrderPlaced", "data": {"total_cents": 7}}'
ADDING = "await self._add(db, key, 1, event.data.total_cents)"
MODELS = "shop/read_models.py"
AT_WORK = "the worker has the code as it is now"


@pytest.fixture
def shop() -> Iterator[Path]:
    """A new project of this test's own."""
    databases.programs_or_skip("embedded")
    with project() as folder:
        yield folder


def totals(dev: Dev) -> dict[str, int]:
    """Return the total of each customer; none before the table is there."""
    found: dict[str, int] = {}

    async def read() -> None:
        connection = await asyncpg.connect(dev.dsn)
        try:
            rows = await connection.fetch("select customer, total_cents from customer_totals")
        except asyncpg.UndefinedTableError:
            rows = []
        finally:
            await connection.close()
        found.update({row[0]: row[1] for row in rows})

    run_test(read())
    return found


def test_what_is_saved_is_at_work_at_once(shop: Path) -> None:
    """Events that are added are handled; code that does not load changes nothing; code that does is at work; Ctrl-C
    leaves no process, and the next start finds the database as it was.
    """
    with developing(shop, *EVENTS) as dev:
        dev.wait_for("caught up")
        assert totals(dev) == {"customer-ada": 500, "customer-bob": 0}

        edit(shop / MODELS, ADDING, f"{ADDING})")
        dev.wait_for("the code does not load: the worker goes on with the code of before until the next save")
        assert "SyntaxError" in dev.said
        dev.append(ORDER)
        wait_until(lambda: totals(dev).get("customer-cy") == 7, 30, "the old worker goes on")

        edit(shop / MODELS, f"{ADDING})", ADDING.replace("_cents)", "_cents * 100)"))
        dev.wait_for(AT_WORK, 2)
        dev.append(ORDER)
        wait_until(lambda: totals(dev)["customer-cy"] == 707, 30, "the new code is at work")

        left = dev.processes()
        assert left
        assert dev.end() == 130
        assert [pid for pid in left if is_alive(pid)] == []
        assert "Traceback" not in dev.said
        assert "Fatal" not in dev.said

    with developing(shop, *EVENTS) as dev:
        dev.wait_for(AT_WORK, 3)
        dev.wait_for("events.jsonl: 4 appended")
        assert "events.jsonl: 0 appended" not in dev.said
        assert totals(dev) == {"customer-ada": 500, "customer-bob": 0, "customer-cy": 707}
        refused = headrace("dev", APP, cwd=shop)
        assert refused.code == 2
        assert f"another `headrace dev` runs here (process {dev.process.pid})" in refused.err
        first, *others = re.findall(r"HEADRACE_DSN=(\S+)", dev.said)
        assert others == [first], "the port stays"
        assert dev.end(signal.SIGTERM) == 143


def test_it_ends_when_its_database_is_stopped(shop: Path) -> None:
    """Somebody else stops the server: one error says so, nothing is left running, and it can be started again."""
    edit(shop / MODELS, ADDING, f"{ADDING})")
    with developing(shop) as dev:
        dev.wait_for("the code does not load: no worker runs until the next save")
        edit(shop / MODELS, f"{ADDING})", ADDING)
        dev.wait_for("caught up")
        left = dev.processes()
        server = int((shop / ".headrace" / "data" / "postmaster.pid").read_text("utf-8").splitlines()[0])
        os.kill(server, signal.SIGINT)
        assert dev.process.wait(30) == 1
        assert dev.said.count("error: the database was stopped from outside: start `headrace dev` again") == 1
        after = dev.said.rpartition(AT_WORK)[2]
        assert "Traceback" not in after
        assert after.count("[warning]") <= 1, "the worker may be quicker to see it, once"
        assert [pid for pid in left if is_alive(pid)] == []
    with developing(shop, *EVENTS, "--fresh") as dev:
        dev.wait_for("caught up", 2)
        first, *others = re.findall(r"HEADRACE_DSN=(\S+)", dev.said)
        assert others == [first], "the port stays, with --fresh too"
        assert dev.end() == 130


def test_a_line_that_was_appended_cannot_be_changed(shop: Path) -> None:
    """A line of the events file that is changed is told once and nothing is appended, in a later run as well; with the
    line as it was, what is new is appended, once.
    """
    differs = "line 1 of events.jsonl differs from what is in the log"
    events = shop / "events.jsonl"
    first = events.read_text("utf-8").splitlines()[0]
    with developing(shop, *EVENTS) as dev:
        dev.wait_for("caught up")
        edit(events, first, first.replace("300", "400"))
        dev.wait_for(differs)
        dev.append(ORDER)
        edit(shop / MODELS, ADDING, f"{ADDING}  # saved")
        dev.wait_for(AT_WORK, 2)
        assert dev.said.count(differs) == 1
        assert "start afresh with --fresh" in dev.said
        assert dev.end() == 130
    with developing(shop, *EVENTS) as dev:
        dev.wait_for(differs, 2)
        edit(events, first.replace("300", "400"), first)
        wait_until(lambda: totals(dev).get("customer-cy") == 7, 30, "the new line is handled")
        assert totals(dev) == {"customer-ada": 500, "customer-bob": 0, "customer-cy": 7}
        assert dev.end() == 130


def test_a_key_that_failed_is_tried_when_its_handler_is_mended(shop: Path) -> None:
    """A failing key waits for a person; the save of a mended handler has it tried at once."""
    mistake = "raise ValueError('not yet')"
    never = "retry=RetryPolicy(attempts=0, parked_attempts=0)"
    edit(shop / MODELS, "PartitionKey, Stream", "PartitionKey, RetryPolicy, Stream")
    edit(shop / MODELS, "partition_by=Stream()", f"partition_by=Stream(), {never}")
    edit(shop / MODELS, ADDING, mistake)
    with developing(shop) as dev:
        dev.wait_for(AT_WORK)
        assert headrace("import", "events.jsonl", dsn=dev.dsn, cwd=shop).code == 0
        dev.wait_for("not yet")
        dev.wait_for("2 keys parked")
        dev.wait_for('shop/read_models.py", line ')
        assert dev.said.count("Traceback") == 1, "one trace, though two keys have the same error"
        edit(shop / MODELS, mistake, ADDING)
        wait_until(lambda: totals(dev) == {"customer-ada": 500, "customer-bob": 0}, 30, "all is handled")
        assert "no live worker" not in dev.said
        assert dev.end() == 130


def test_a_kill_leaves_nothing_running(shop: Path) -> None:
    """Killed, it takes nothing down itself; its worker and its server still end, and the database starts again."""
    with developing(shop, *EVENTS) as dev:
        dev.wait_for("caught up")
        left = dev.processes()
        workers = {pid for pid in left if b"runtime.dev.child" in Path(f"/proc/{pid}/cmdline").read_bytes()}
        assert len(workers) == 1
        assert dev.end(signal.SIGKILL) == -signal.SIGKILL
        wait_until(lambda: not any(is_alive(pid) for pid in left), 60, "worker and server have ended")
    with developing(shop, *EVENTS) as dev:
        dev.wait_for("caught up", 2)
        assert totals(dev) == {"customer-ada": 500, "customer-bob": 0}
        assert dev.end() == 130
    with developing(shop, "--fresh") as dev:
        dev.wait_for("caught up", 3)
        assert totals(dev) == {}
        assert dev.end() == 130


def test_a_database_can_be_named(shop: Path, empty_database: Database) -> None:
    """With --dsn the schema is made there, no server is started, and HEADRACE_DSN is not looked at."""
    variables = {"dsn": "postgresql://nobody@127.0.0.1:1/nowhere"}
    with developing(shop, *EVENTS, "--dsn", empty_database.dsn, variables=variables) as dev:
        dev.wait_for("caught up")
        assert not (shop / ".headrace").exists()
        assert dev.end() == 130


def test_a_folder_that_is_closed_to_postgresql_stays_closed(shop: Path) -> None:
    """Where its account cannot write, no right is changed: the database is a passing one, and that is said."""
    closed = shop.parent if os.geteuid() == 0 else shop
    mode = 0o700 if os.geteuid() == 0 else 0o500
    closed.chmod(mode)
    with developing(shop, *EVENTS) as dev:
        dev.wait_for("the database is gone at the end")
        dev.wait_for("caught up")
        assert not (shop / ".headrace").exists()
        assert closed.stat().st_mode & 0o777 == mode
        assert dev.end() == 130
    closed.chmod(0o755)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "no application was named"),
        ((APP, "--events", "nosuch.jsonl"), "nosuch.jsonl is no file"),
        ((APP, "--dsn", "postgresql://a@127.0.0.1/b", "--fresh"), "nothing is forgotten"),
    ],
    ids=["no app", "no events", "fresh with a dsn"],
)
def test_a_wrong_call_is_refused_before_anything_starts(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    """One message with the fix, exit code 2, and no folder made."""
    outcome = headrace("dev", *arguments, cwd=tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert says in outcome.err
    assert list(tmp_path.iterdir()) == []
