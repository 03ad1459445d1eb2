"""Exit codes are published: the page lists them all, and each has been seen."""

import json
import re
import signal

import pytest

from headrace.cli.ending import ExitCode
from support.commands import headrace, started
from support.databases import Database
from support.fleet import TESTS

APP = "support.apps.cli_shop:app"
PAGE = TESTS.parent / "docs" / "reference" / "terminal.md"
OF_A_CLOSED_PIPE = 141


def log(*events: tuple[str, dict[str, bool]]) -> bytes:
    """Return a log of (stream, data) pairs."""
    return b"".join(json.dumps({"stream": s, "type": "T", "data": d}).encode() + b"\n" for s, d in events)


def test_the_page_lists_every_code() -> None:
    """docs/reference/terminal.md has a row for each code that a command can end with, and no other."""
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE.read_text("utf-8"), re.MULTILINE)}

    assert listed == {int(code) for code in ExitCode} | {OF_A_CLOSED_PIPE}


def test_done_errors_and_not_finished(database: Database) -> None:
    """0 when everything is done; 4 when a limit left work; 1 when something failed; waiting in vain is 4 again."""
    codes = [headrace("setup", APP, dsn=database.dsn, cwd=TESTS).code]
    headrace("import", "-", dsn=database.dsn, stdin=log(("a", {}), ("b", {"doom": True}), ("b", {}), ("c", {})))
    codes.append(headrace("boot", APP, "--limit", "1", dsn=database.dsn, cwd=TESTS).code)
    codes.append(headrace("run", APP, dsn=database.dsn, cwd=TESTS).code)
    codes.append(headrace("wait", "orders#b", "--timeout", "0.2", dsn=database.dsn).code)
    codes.append(headrace("status", dsn=database.dsn).code)

    assert codes == [0, 0, 1, 4, 0]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        ([], 2),
        (["nosuch"], 2),
        (["status", "--nosuch"], 2),
        (["status", "--output", "xml"], 2),
        (["status"], 2),
        (["worker", "nosuch.module:app", "--dsn", "postgresql://x@127.0.0.1:1/x"], 2),
        (["status", "--dsn", "postgresql://x@127.0.0.1:1/x"], 3),
        (["migrate", "--dsn", "postgresql://x@127.0.0.1:1/x"], 3),
        (["import", "-", "--dsn", "postgresql://x@127.0.0.1:1/x"], 3),
    ],
)
def test_usage_and_unreachable(arguments: list[str], code: int) -> None:
    """2 for a call that cannot be meant, 3 for a database that is not there; a message on standard error, no trace."""
    outcome = headrace(*arguments)

    assert outcome.code == code, outcome
    assert "Traceback" not in outcome.err
    assert bool(outcome.err) == bool(code and arguments)  # nothing asked at all gets the help


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals(database: Database, number: signal.Signals, code: int) -> None:
    """A command that is ended by a signal says which; nothing is printed about it."""
    headrace("setup", APP, dsn=database.dsn, cwd=TESTS)
    with started("top", "--every", "0.1", dsn=database.dsn) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        _, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (code, b"")


def test_a_reader_that_went_away(database: Database) -> None:
    """Like every program whose pipe was closed: 128 and the signal's number, without a word."""
    headrace("setup", APP, dsn=database.dsn, cwd=TESTS)
    with started("top", "--every", "0.1", dsn=database.dsn) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        code = process.wait(60)
        said = process.stderr.read()
        process.stdout = None

    assert (code, said) == (OF_A_CLOSED_PIPE, b"")


def test_colours_follow_the_environment(database: Database) -> None:
    """In a pipe there is no escape; FORCE_COLOR brings them, in help too; NO_COLOR wins."""
    headrace("setup", APP, dsn=database.dsn, cwd=TESTS)

    def escapes(*arguments: str, **environment: str) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("FORCE_COLOR", "NO_COLOR", "GITHUB_ACTIONS", "PY_COLORS"):
                patch.delenv(name, raising=False)
            for name, value in environment.items():
                patch.setenv(name, value)
            outcome = headrace(*arguments, dsn=database.dsn)
        return "\x1b" in outcome.out + outcome.err

    for arguments in (["status"], ["--help"], ["status", "--nosuch"], ["status", "nosuch"]):
        found = [
            escapes(*arguments),
            escapes(*arguments, FORCE_COLOR="1"),
            escapes(*arguments, FORCE_COLOR="1", NO_COLOR="1"),
        ]
        assert found == [False, True, False], arguments


def test_names_from_standard_input(database: Database) -> None:
    """A - stands for the lines of standard input; none at all is refused, or nothing would mean everything."""
    headrace("setup", APP, dsn=database.dsn, cwd=TESTS)
    some = headrace("status", "-", "-o", "json", dsn=database.dsn, stdin=b"totals\n\n")
    none = headrace("failures", "resume", "-", dsn=database.dsn, stdin=b"\n")

    assert [s["subscription"] for s in some.json["subscriptions"]] == ["totals"]
    assert (none.code, "names nothing" in none.err) == (2, True)
