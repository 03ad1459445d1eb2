"""Completion of a command line by the shell: the script that a shell reads, and names out of the database.

Somebody presses a key and waits, so everything here ends within a second, says nothing, and loads the database only
where a name of it is asked for. Names go into a shell: one that a shell would not take as it stands is never offered.
"""

import os
import shlex
from enum import StrEnum
from pathlib import PurePath
from typing import Annotated, Any

import typer
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]

SECONDS = 1.0
"""How long a look for names may take in all."""
VARIABLE = "_HEADRACE_COMPLETE"
"""What a shell's script sets when it asks."""


class Shell(StrEnum):
    """The shells that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion_command(
    shell: Annotated[
        Shell | None, typer.Argument(metavar="SHELL", help="bash, zsh or fish; default: that of SHELL.")
    ] = None,
) -> None:
    """Print what makes a shell complete commands, options and names of subscriptions.

    Names come from the database of HEADRACE_DSN or --dsn, when it answers within a second.

    bash: put the line  source <(headrace completion bash)  into ~/.bashrc

    zsh: put it into ~/.zshrc, behind compinit, with zsh for bash

    fish: headrace completion fish > ~/.config/fish/completions/headrace.fish
    """
    typer.echo(get_completion_script(prog_name="headrace", complete_var=VARIABLE, shell=shell or _of_this_person()))


def prepare() -> None:
    """Make ready to answer a shell in its way, when it is one that asks."""
    if VARIABLE in os.environ:
        completion_init()


def subscription_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of subscriptions that begin so; none when the database does not answer in time."""
    import asyncio  # noqa: PLC0415 - a list of commands is had without it

    try:
        names = asyncio.run(asyncio.wait_for(_names(ctx.params), SECONDS))
    except Exception:  # noqa: BLE001 - no completion is the only answer that helps whoever is typing
        return []
    taken = ctx.params.get("names") or ()
    return [n for n in names if n.startswith(incomplete) and n not in taken and shlex.quote(n) == n]


async def _names(given: dict[str, Any]) -> list[str]:
    from headrace.cli.options import settings_with  # noqa: PLC0415 - options name this module
    from headrace.runtime.operations import open_operations  # noqa: PLC0415 - only where a name is asked for

    settings = settings_with(dsn=given.get("dsn"), schema_name=given.get("schema"))
    async with open_operations(settings) as operations:
        return sorted(found.name for found in await operations.catalog.find())


def _of_this_person() -> Shell:
    named = PurePath(os.environ.get("SHELL", "")).name
    if named in list(Shell):
        return Shell(named)
    raise typer.BadParameter(f"SHELL is {named or 'not set'}: say bash, zsh or fish", param_hint="SHELL")
