"""Options that several commands share, and the settings they lead to."""

import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from headrace.cli.completing import subscription_names
from headrace.cli.output import OutputForm
from headrace.domain.errors import BadInput
from headrace.settings import Settings, read_settings

DsnOption = Annotated[
    str | None,
    typer.Option(
        "--dsn",
        metavar="URL",
        help="Database, postgresql://user@host:5432/name; default: HEADRACE_DSN, which also hides a password.",
        show_default=False,
    ),
]
SchemaOption = Annotated[
    str | None,
    typer.Option(
        "--schema", help="PostgreSQL schema of Headrace; default: HEADRACE_SCHEMA or headrace.", show_default=False
    ),
]
OutputOption = Annotated[
    OutputForm, typer.Option("--output", "-o", help="text for people, json (stable) for scripts.", case_sensitive=False)
]
AppOption = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:ATTRIBUTE", help="Application; default: HEADRACE_APP.", show_default=False),
]
GroupOption = Annotated[
    list[str] | None, typer.Option("--group", help="Only subscriptions of this group; repeatable.", show_default=False)
]
LimitOption = Annotated[
    int | None,
    typer.Option("--limit", min=1, help="Stop after so many events; exit code 4 if work is left.", show_default=False),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option("--timeout", min=0, metavar="SECONDS", help="Give up after so long, exit code 4.", show_default=False),
]
KeyOption = Annotated[
    str | None, typer.Option("--key", help="One partition key; instead of NAME#KEY.", show_default=False)
]


NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A subscription.", autocompletion=subscription_names, show_default=False)
]
NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME",
        help="Subscriptions (default: all); - reads names from standard input, one a line.",
        autocompletion=subscription_names,
        show_default=False,
    ),
]
STDIN = "-"


def with_standard_input(given: Iterable[str] | None) -> list[str] | None:
    """Return what was named, with the lines of standard input in place of a -; None where nothing was named.

    Raises:
        BadInput: a - was given, and standard input has no line: nothing must not come to mean everything.

    """
    found: list[str] = []
    for text in given or ():
        if text != STDIN:
            found.append(text)
            continue
        lines = [line.strip() for line in sys.stdin if line.strip()]
        if not lines:
            raise BadInput("standard input names nothing: write one name a line")
        found += lines
    return found or None


def settings_with(**options: Any) -> Settings:
    """Return the settings of the environment, with options given by hand winning.

    Raises:
        UsageError: a value cannot be used.

    """
    return read_settings(options)
