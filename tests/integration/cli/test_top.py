"""`headrace top`: a screen that is given back as it was, plain tables in a pipe, documents for a script."""

import json
import re
import termios

import pytest

from support.commands import headrace
from support.databases import Database
from support.fleet import TESTS
from support.terminals import terminal
from support.waiting import until

APP = "support.apps.cli_shop:app"
LEAVES_SCREEN = "\x1b[?1049l"


@pytest.mark.parametrize("keys", ["q", "\x03"])
async def test_a_key_ends_the_screen(database: Database, keys: str) -> None:
    """Q and Ctrl-C end it with 0; the screen that was there before is back, and the keyboard as it was."""
    headrace("setup", APP, dsn=database.dsn, cwd=TESTS)
    with terminal("top", "--every", "30", dsn=database.dsn) as shown:
        await until(lambda: shown.shows("q ends"), 30)
        assert shown.shows("orders")
        assert shown.shows("totals")
        assert termios.tcgetattr(shown.keyboard) != shown.before
        shown.type(keys)
        await until(lambda: shown.shows("") and shown.process.poll() is not None, 30)

        assert shown.process.returncode == 0
        assert LEAVES_SCREEN in shown.seen
        assert termios.tcgetattr(shown.keyboard) == shown.before


async def test_another_size_is_drawn_at_once(database: Database) -> None:
    """A window that became smaller shows as many lines as it has, before the next look is due; keys scroll the rest."""
    headrace("setup", APP, dsn=database.dsn, cwd=TESTS)
    with terminal("top", "--every", "600", dsn=database.dsn) as shown:
        await until(lambda: shown.shows("q ends"), 30)
        assert not shown.shows("scroll")
        shown.resize(4, 80)
        await until(lambda: shown.shows("scroll"), 30)
        shown.type("jj")
        await until(lambda: shown.shows("totals"), 30)


async def test_a_signal_gives_the_screen_back(database: Database) -> None:
    """SIGTERM ends it with the code of that signal, and the terminal is as it was."""
    with terminal("top", dsn=database.dsn) as shown:
        await until(lambda: shown.shows("q ends"), 30)
        shown.process.terminate()
        await until(lambda: shown.shows("") and shown.process.poll() is not None, 30)

        assert shown.process.returncode == 143
        assert LEAVES_SCREEN in shown.seen
        assert termios.tcgetattr(shown.keyboard) == shown.before


async def test_a_database_that_goes_away_is_said_on_the_screen(own_database: Database) -> None:
    """While the server is down the screen keeps what it saw and says why; then it goes on by itself."""
    headrace("setup", APP, dsn=own_database.dsn, cwd=TESTS)
    with terminal("top", "--every", "0.2", dsn=own_database.dsn) as shown:
        await until(lambda: shown.shows("q ends"), 30)
        own_database.cluster.stop()
        await until(lambda: shown.shows("trying again"), 30)
        assert shown.shows("orders")
        own_database.cluster.start()
        shown.seen = ""
        await until(lambda: shown.shows("q ends"), 30)


def test_plain_tables_in_a_pipe(database: Database) -> None:
    """Piped it prints the time and the table of the status, as often as it is told, without a single escape."""
    headrace("setup", APP, dsn=database.dsn, cwd=TESTS)
    outcome = headrace("top", "orders", "--times", "2", "--every", "0.1", dsn=database.dsn)
    lines = outcome.out.splitlines()

    assert outcome.code == 0
    assert [bool(re.fullmatch(r"\d\d:\d\d:\d\d", line)) for line in lines] == [True, False, True, False]
    assert "orders  active" in lines[1]
    assert "0/s" in lines[3]
    assert "\x1b" not in outcome.out


async def test_a_dumb_terminal_gets_lines(database: Database) -> None:
    """A terminal that can place nothing gets what a pipe gets."""
    with terminal("top", "--times", "1", dsn=database.dsn, TERM="dumb") as shown:
        await until(lambda: shown.shows("") and shown.process.poll() is not None, 30)

        assert "\x1b" not in shown.seen


def test_one_document_a_line_for_scripts(database: Database) -> None:
    """--output json prints what status prints, one document a line."""
    headrace("setup", APP, dsn=database.dsn, cwd=TESTS)
    top = headrace("top", "--times", "2", "--every", "0.1", "-o", "json", dsn=database.dsn)
    status = headrace("status", "-o", "json", dsn=database.dsn)
    documents = [json.loads(line) for line in top.out.splitlines()]

    assert (top.code, len(documents)) == (0, 2)
    assert documents[0].keys() == status.json.keys()
    assert documents[0]["subscriptions"][0].keys() == status.json["subscriptions"][0].keys()


async def test_no_database_is_an_error_and_no_screen() -> None:
    """Where nothing can be reached at the start, it ends with 3 like every command."""
    with terminal("top", dsn="postgresql://nobody@127.0.0.1:1/nothing") as shown:
        await until(lambda: shown.shows("") and shown.process.poll() is not None, 30)

        assert shown.process.returncode == 3
        assert "\x1b[?1049h" not in shown.seen
