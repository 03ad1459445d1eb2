"""How help and mistakes in a call look: typer's own pages, in tones that can be read on black and on white.

typer draws them with what stands in one of its modules, which is heavy and loaded only when there is something to draw.
So its colours are set right before that, and here alone.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from headrace.cli.output import BAD, BUSY, CARE, GOOD, QUIET, colours

STYLES = {
    "STYLE_OPTION": f"bold {BUSY}",
    "STYLE_SWITCH": f"bold {GOOD}",
    "STYLE_NEGATIVE_OPTION": f"bold {CARE}",
    "STYLE_NEGATIVE_SWITCH": f"bold {BAD}",
    "STYLE_TYPES": CARE,
    "STYLE_TYPES_SEPARATOR": QUIET,
    "STYLE_METAVAR": CARE,
    "STYLE_METAVAR_SEPARATOR": QUIET,
    "STYLE_USAGE": CARE,
    "STYLE_HELPTEXT": "",
    "STYLE_OPTION_DEFAULT": QUIET,
    "STYLE_REQUIRED_SHORT": BAD,
    "STYLE_REQUIRED_LONG": BAD,
    "STYLE_OPTIONS_PANEL_BORDER": QUIET,
    "STYLE_COMMANDS_PANEL_BORDER": QUIET,
    "STYLE_COMMANDS_TABLE_FIRST_COLUMN": f"bold {BUSY}",
    "STYLE_ERRORS_PANEL_BORDER": BAD,
    "STYLE_ERRORS_SUGGESTION": QUIET,
    "STYLE_ABORTED": BAD,
    "RICH_HELP": "Try '{command_path} {help_option}' for help.",
}


def restyle() -> None:
    """Give typer's pages our colours, or none where none are wanted."""
    from typer import rich_utils  # noqa: PLC0415 - see above

    for name, style in STYLES.items():
        setattr(rich_utils, name, style)
    if not colours(os.environ, terminal=True):
        rich_utils.COLOR_SYSTEM = None


class Command(TyperCommand):
    """A command whose help is ours to look at."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Draw the help."""
        restyle()
        super().format_help(ctx, formatter)

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters; of a flag it goes without saying that it is on or off."""
        return without_types_of_flags(super().get_params(ctx))

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the words of a call; what is wrong with them will be drawn."""
        with drawn_when_wrong():
            return super().make_context(info_name, args, parent=parent, **extra)


class CommandGroup(TyperGroup):
    """A group of commands whose help is ours to look at."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Draw the help."""
        restyle()
        super().format_help(ctx, formatter)

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters; of a flag it goes without saying that it is on or off."""
        return without_types_of_flags(super().get_params(ctx))

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the words of a call; what is wrong with them will be drawn."""
        with drawn_when_wrong():
            return super().make_context(info_name, args, parent=parent, **extra)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of a call; that there is none will be drawn."""
        with drawn_when_wrong():
            return super().resolve_command(ctx, args)


def without_types_of_flags(params: list[Any]) -> list[Any]:
    """Return the parameters with nothing said about the type of a flag."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


@contextmanager
def drawn_when_wrong() -> Iterator[None]:
    """Set the colours when a call is refused; nothing is loaded for one that goes on, or that asks for a version."""
    try:
        yield
    except typer.Exit:
        raise
    except Exception:
        restyle()
        raise
