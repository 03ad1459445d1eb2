"""Progress of long work: a bar on a terminal, gone at the end; nothing where nobody watches."""

import json
from pathlib import Path

import pytest

from support.commands import headrace
from support.databases import Database
from support.fleet import TESTS
from support.terminals import ESCAPE, terminal
from support.waiting import until

APP = "support.apps.cli_shop:app"
ERASES_LINE = "\x1b[2K"


def lines(count: int) -> bytes:
    """Return a log of so many events."""
    return b"".join(
        json.dumps({"stream": f"s{n % 50}", "type": "T", "data": {}}).encode() + b"\n" for n in range(count)
    )


@pytest.mark.parametrize("command", ["import", "boot", "run"])
async def test_a_bar_on_a_terminal(database: Database, tmp_path: Path, command: str) -> None:
    """Import, boot and run show events and their rate while they work, and leave only their result on the screen."""
    file = tmp_path / "log.jsonl"
    file.write_bytes(lines(3000))
    # What is in the log before the set-up is booted, what comes later is run.
    before: dict[str, list[str]] = {"import": [], "boot": ["import", "setup"], "run": ["setup", "boot", "import"]}
    for words in before[command]:
        headrace(words, str(file) if words == "import" else APP, dsn=database.dsn, cwd=TESTS)
    with terminal(command, str(file) if command == "import" else APP, dsn=database.dsn, columns=200) as shown:
        await until(lambda: shown.shows("/s ") and shown.shows("events"), 60)
        await until(lambda: shown.shows("") and shown.process.poll() is not None, 60)
        shown.shows("")

        assert shown.process.returncode == 0
        *_, bar, result = shown.seen.rstrip("\r\n").split("\n")
        assert ERASES_LINE in bar + result
        assert "3,000 events" in ESCAPE.sub("", result)


async def test_migrations_are_named_on_a_terminal(empty_database: Database) -> None:
    """While a migration is applied its name stands there."""
    with terminal("migrate", dsn=empty_database.dsn) as shown:
        await until(lambda: shown.shows("") and shown.process.poll() is not None, 60)
        shown.shows("")

        assert shown.process.returncode == 0
        assert "0001_pre_events …" in ESCAPE.sub("", shown.seen)


async def test_what_is_told_meanwhile_stands_above_the_bar(database: Database) -> None:
    """A key that fails while the bar is there is said on a line of its own."""
    doomed = b'{"stream": "b", "type": "T", "data": {"doom": true}}\n'
    headrace("import", "-", dsn=database.dsn, stdin=doomed + lines(500))
    headrace("setup", APP, dsn=database.dsn, cwd=TESTS)
    with terminal("boot", APP, dsn=database.dsn, columns=200) as shown:
        await until(lambda: shown.shows("") and shown.process.poll() is not None, 60)
        shown.shows("")
        seen = [ESCAPE.sub("", line) for line in shown.seen.replace("\r", "\n").split("\n")]

        assert shown.process.returncode == 1
        told = [line for line in seen if "doomed" in line and "error:" not in line]
        assert told
        assert not any("━" in line for line in told)


def test_no_bar_in_a_pipe(database: Database) -> None:
    """Piped there is the result and nothing else."""
    headrace("import", "-", dsn=database.dsn, stdin=lines(10))
    headrace("setup", APP, dsn=database.dsn, cwd=TESTS)
    outcome = headrace("boot", APP, dsn=database.dsn, cwd=TESTS)

    assert (outcome.code, outcome.out, outcome.err) == (0, "boot: 10 events handled\n", "")
