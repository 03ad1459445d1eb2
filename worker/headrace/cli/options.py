"""Options that several commands share, and the settings they lead to."""

from typing import Annotated, Any

import typer

from headrace.cli.output import OutputForm
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


def settings_with(**options: Any) -> Settings:
    """Return the settings of the environment, with options given by hand winning.

    Raises:
        UsageError: a value cannot be used.

    """
    return read_settings(options)
