"""`headrace migrate`, and how every command fails: one message, the right code, no traceback."""

import os
import subprocess

import pytest

from headrace import __version__
from support.commands import command, environment, headrace
from support.databases import Database


def test_migrate_says_what_it_did(empty_database: Database) -> None:
    """The first run applies, the second finds everything up to date; both end with 0."""
    first = headrace("migrate", dsn=empty_database.dsn)
    second = headrace("migrate", "--output", "json", dsn=empty_database.dsn)

    assert first.code == second.code == 0
    assert first.out.startswith("schema headrace: applied 0001_pre_events, ")
    assert second.json == {"schema": "headrace", "applied": []}


async def test_migrate_in_a_schema_of_another_name(empty_database: Database) -> None:
    """--schema and HEADRACE_SCHEMA name the schema, capitals and blanks included."""
    made = headrace("migrate", "--schema", "Shop Log", dsn=empty_database.dsn)
    found = headrace("migrate", dsn=empty_database.dsn, variables={"schema": "Shop Log"})

    assert (made.code, found.out) == (0, "schema Shop Log: up to date\n")


def test_grants_are_printed_without_a_database() -> None:
    """--grants ROLE prints statements to pipe into psql and touches nothing."""
    outcome = headrace("migrate", "--grants", 'wor"ker', dsn="postgresql://nobody@127.0.0.1:1/none")

    assert outcome.code == 0
    assert 'to "wor""ker";' in outcome.out


@pytest.mark.parametrize(
    ("arguments", "dsn", "code", "message"),
    [
        (["migrate"], None, 2, "set HEADRACE_DSN or give --dsn"),
        (["migrate"], "mysql://u:s3cret@h/d", 2, "must look like postgresql://"),
        (["migrate"], "postgresql://u:s3cret@127.0.0.1:1/d", 3, "cannot be reached"),
        (["migrate", "--schema", "x" * 80], "postgresql://u:s3cret@127.0.0.1:1/d", 2, "--schema (HEADRACE_SCHEMA)"),
        (["import", "-"], "postgresql://u:s3cret@127.0.0.1:1/d", 3, "cannot be reached"),
        (["nonsense"], None, 2, "No such command 'nonsense'"),
        (["migrate", "--nonsense"], None, 2, "No such option"),
    ],
)
def test_errors_are_one_message_and_a_code(arguments: list[str], dsn: str | None, code: int, message: str) -> None:
    """Usage is 2, an unreachable database 3; the message names the fix and never the password."""
    outcome = headrace(*arguments, dsn=dsn)

    assert (outcome.code, outcome.out) == (code, "")
    assert message in " ".join(outcome.err.split())
    assert "Traceback" not in outcome.err
    assert "s3cret" not in outcome.err


def test_missing_database_and_schema(empty_database: Database) -> None:
    """A database without the schema, or one that is not there, is a usage error that names the fix."""
    no_schema = headrace("import", "-", dsn=empty_database.dsn)
    no_database = headrace("import", "-", dsn=empty_database.cluster.dsn("no_such_database"))

    assert (no_schema.code, no_database.code) == (2, 2)
    assert "run `headrace migrate`" in no_schema.err
    assert "correct the DSN" in no_database.err


def test_debug_shows_where(empty_database: Database) -> None:
    """--debug, wherever it stands, shows the traceback, with passwords taken out."""
    outcome = headrace("migrate", "--dsn", "postgresql://u:s3cret@127.0.0.1:1/d", "--debug")

    assert outcome.code == 3
    assert "Traceback" in outcome.err
    assert "s3cret" not in outcome.err


def test_version_and_help() -> None:
    """--version names the release; --help lists the commands and each one's help has an example."""
    assert headrace("--version").out == f"headrace {__version__}\n"
    assert "migrate" in headrace("--help").out
    for name in ("migrate", "import"):
        assert "Example: headrace" in headrace(name, "--help").out


def test_plain_when_piped() -> None:
    """Without a terminal there is no escape sequence in what is printed, not even in help and errors."""
    for outcome in (headrace("--help"), headrace("migrate"), headrace("nonsense")):
        assert "\x1b" not in outcome.out + outcome.err


def test_a_closed_pipe_is_quiet() -> None:
    """`headrace … | head -0`: nobody reads, nobody is told."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command("migrate", "--grants", "worker"),
        env=environment(),
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(writing)

    assert done.stderr == b""
