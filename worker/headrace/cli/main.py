"""Entry of the command line: the commands by name, the options of all, and how it ends."""

import sys
from typing import Annotated, NoReturn

import typer

from headrace import __version__
from headrace.cli.commands import COMMANDS, Deferred
from headrace.cli.completing import prepare
from headrace.cli.ending import guarded
from headrace.cli.helping import CommandGroup

DEBUG = "--debug"
EPILOG = """Start with: headrace demo

Exit codes: 0 done, 1 done with errors, 2 usage, 3 database unreachable, 4 not finished"""

app = typer.Typer(
    name="headrace",
    help="Events in PostgreSQL, routed once to the partition they belong to, each partition worked in order.",
    epilog=EPILOG,
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def everywhere(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show where an error comes from.")] = False,
) -> None:
    """Take the options that every command has."""


def _is_loaded_when_called() -> None:
    """Stand for a command; what is run is the command itself."""


for _name, _entry in COMMANDS.items():
    app.command(_name, cls=Deferred, help=_entry.summary)(_is_loaded_when_called)


def main() -> NoReturn:
    """Run the command line and leave the process."""
    prepare()
    arguments = sys.argv[1:]
    # Wherever it stands, up to a bare --: people add it at the end of what failed.
    named = arguments[: arguments.index("--")] if "--" in arguments else arguments
    debug = DEBUG in named
    if debug:
        arguments.remove(DEBUG)
    guarded(lambda: app(arguments, prog_name="headrace"), debug=debug)
