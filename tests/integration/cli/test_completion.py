"""Completion by the shell: commands, options and values from the list, names from the database, nothing that harms."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import environment, headrace
from support.databases import Database
from support.fleet import TESTS
from support.waiting import until, wait_until

APP = "support.apps.cli_shop:app"
# Bash itself, made to complete a line as if somebody pressed the key.
PRESSED = """
source <(headrace completion bash)
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_headrace_completion headrace
printf '%s\\n' "${COMPREPLY[@]}"
"""


def offered_by_bash(*words: str, dsn: str | None = None) -> list[str]:
    """Return what bash offers for the last of these words."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", PRESSED, "bash", *words],
        env=environment(dsn) | {"PATH": path},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == b""
    return done.stdout.decode().split()


def offered(shell: str, line: str, dsn: str | None = None) -> str:
    """Return what the command line answers to a shell that asks what could follow."""
    asked = {"_HEADRACE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    done = subprocess.run(
        [sys.executable, "-m", "headrace"],
        env=environment(dsn) | asked | {"_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == b""
    return done.stdout.decode()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["headrace", "sta"], ["status"]),
        (["headrace", "failures", "re"], ["resume"]),
        (["headrace", "status", "--part"], ["--partitions"]),
        (["headrace", "status", "--output", ""], ["text", "json"]),
    ],
)
def test_bash_completes_commands_options_and_values(words: list[str], wanted: list[str]) -> None:
    """In bash, with the script that `headrace completion bash` prints, and without a database."""
    assert offered_by_bash(*words) == wanted


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["headrace", "status", ""], ["orders", "totals"]),
        (["headrace", "status", "orders", ""], ["totals"]),
        (["headrace", "wait", "to"], ["totals"]),
        (["headrace", "worker", "--subscriber", "or"], ["orders"]),
    ],
)
def test_names_come_from_the_database(database: Database, words: list[str], wanted: list[str]) -> None:
    """A subscription is completed wherever one is asked for; one that is there already is not offered again."""
    headrace("setup", APP, dsn=database.dsn, cwd=TESTS)

    # On a busy machine a second can be too short for a first try.
    wait_until(lambda: offered_by_bash(*words, dsn=database.dsn) == wanted, 60)


@pytest.mark.parametrize(("shell", "wanted"), [("zsh", "_arguments '*: :((\"totals\"))'\n"), ("fish", "totals\n")])
async def test_a_name_that_a_shell_would_obey_is_not_offered(database: Database, shell: str, wanted: str) -> None:
    """What comes from the database ends up in a shell: a name with a blank, a quote or a $ is left out."""
    headrace("setup", APP, dsn=database.dsn, cwd=TESTS)
    async with database.connection() as connection:
        await connection.execute("update headrace.subscriptions set name = '$(touch${IFS}x)' where name = 'orders'")

    await until(lambda: offered(shell, f"headrace status --dsn {database.dsn} ") == wanted, 60)


def test_a_database_that_does_not_answer_is_not_waited_for() -> None:
    """A server that takes the connection and says nothing is given up after a second, without a word."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = f"postgresql://somebody@127.0.0.1:{silent.getsockname()[1]}/nothing"

        assert offered_by_bash("headrace", "status", "", dsn=dsn) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named, or taken from SHELL."""
    named = headrace("completion", shell)
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    found = headrace("completion")

    assert (named.code, found.code) == (0, 0)
    assert named.out == found.out
    assert f"complete_{shell}" in named.out


def test_another_shell_is_refused() -> None:
    """It is said which shells there are."""
    assert headrace("completion", "tcsh").code == 2
