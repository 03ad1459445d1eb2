"""A command pays for what it needs: what is loaded by whom, and that everything is still there when it is asked for."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.core import TyperCommand, TyperGroup

import headrace
from headrace.cli.commands import COMMANDS, loaded
from headrace.cli.helping import Command
from support.commands import environment

# What only work needs, and what only one kind of work needs.
OF_WORK = {"asyncio", "asyncpg", "orjson", "pydantic", "pydantic_settings", "structlog", "headrace.store.pool"}
OF_WORKERS = {
    "prometheus_client",
    "headrace.engine.engine",
    "headrace.subscribers.declare",
    "headrace.telemetry.metrics",
}
OF_LINES = {"structlog", "headrace.telemetry.logs"}

SHOWN = """
import sys
from headrace.cli.main import main
sys.argv[1:] = {arguments}
try:
    main()
finally:
    print("loaded:", *sys.modules)
"""


def loaded_by(code: str) -> set[str]:
    """Return the modules that an interpreter of its own has loaded after this code."""
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, check=False, timeout=60)
    return set(done.stdout.decode().rpartition("loaded:")[2].split())


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], OF_WORK | OF_WORKERS),
        (["--version"], OF_WORK | OF_WORKERS | {"rich"}),
        (["nosuch"], OF_WORK - {"pydantic"} | OF_WORKERS),  # typer itself checks values with it
        (["status"], OF_WORKERS | OF_LINES | {"orjson", "headrace.store.work"}),
        (["top"], OF_WORKERS | OF_LINES | {"orjson", "headrace.store.work"}),
        (["completion", "bash"], OF_WORK - {"pydantic"} | OF_WORKERS | {"rich"}),
        (["failures", "list"], OF_WORKERS | OF_LINES | {"orjson", "headrace.store.work"}),
        (["migrate"], OF_WORKERS | OF_LINES | {"orjson", "headrace.engine"}),
        (["wait", "orders"], OF_WORKERS),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_loads_nothing_of_others(arguments: list[str], unwanted: set[str]) -> None:
    """What a command does not need is not loaded: it is called often, and loading is most of what that costs."""
    found = loaded_by(SHOWN.format(arguments=arguments))

    assert "headrace.cli.main" in found
    assert found & unwanted == set()


def test_a_room_is_loaded_alone() -> None:
    """Importing one room does not load what the package exports."""
    found = loaded_by("import sys, headrace.domain.errors; print('loaded:', *sys.modules)")

    assert {name for name in found if name.startswith("headrace.")} == {"headrace.domain", "headrace.domain.errors"}


def test_every_public_name_is_there() -> None:
    """Each exported name is found and listed, and a name that is not exported is an AttributeError."""
    assert [name for name in headrace.__all__ if getattr(headrace, name, None) is None] == []
    assert set(headrace.__all__) <= set(dir(headrace))
    with pytest.raises(AttributeError, match="no attribute 'Nosuch'"):
        headrace.Nosuch  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_the_command_says(name: str) -> None:
    """The sentence in `headrace --help` opens the command's own help, under the same name."""
    command = loaded(name)

    assert isinstance(command, TyperCommand | TyperGroup)
    assert command.name == name
    assert " ".join(str(command.help).partition("\n\n")[0].split()) == COMMANDS[name].summary


def test_the_list_of_commands_is_whole() -> None:
    """The command line has the commands of the list, each loaded when it is called."""
    from headrace.cli.main import app

    assert list(vars(typer.main.get_command(app))["commands"]) == list(COMMANDS)


def test_a_shell_that_asks_for_commands_loads_nothing_of_work() -> None:
    """Somebody has pressed a key and waits: the list of commands is had without what any of them does."""
    asked = {"_HEADRACE_COMPLETE": "complete_bash", "COMP_WORDS": "headrace st", "COMP_CWORD": "1"}
    set_up = f"import os; os.environ |= {asked!r}"
    found = loaded_by(set_up + SHOWN.format(arguments=[]))

    assert "headrace.cli.main" in found
    assert found & (OF_WORK - {"pydantic"} | OF_WORKERS) == set()


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command that can be called, with its words."""
    for name in COMMANDS:
        command = loaded(name)
        yield from ((f"{name} {below}", c) for below, c in getattr(command, "commands", {}).items())
        if not hasattr(command, "commands"):
            yield name, command


@pytest.mark.parametrize(("words", "command"), list(commands()), ids=lambda part: part if isinstance(part, str) else "")
def test_every_command_gives_an_example_that_can_be_called(words: str, command: Any) -> None:
    """Help ends with an example at least, each of this command, with options and arguments that it takes."""
    examples = re.findall(r"headrace [^|<>()]+", str(command.epilog).replace("\n", " Example: "))
    found = [shlex.split(example.partition(" Example:")[0]) for example in examples]

    assert isinstance(command, Command)
    assert found
    for line in found:
        assert line[1 : 1 + len(words.split())] == words.split()
        command.make_context(words, line[1 + len(words.split()) :])
