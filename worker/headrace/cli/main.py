"""Entry of the command line: the commands by name, the options of all, and how it ends."""

import sys
from typing import Annotated, NoReturn

import typer

from headrace import __version__
from headrace.cli.demo import demo_command
from headrace.cli.execution import guarded
from headrace.cli.failures import failures_app
from headrace.cli.importing import import_command
from headrace.cli.running import boot_command, run_command, setup_command, wait_command, worker_command
from headrace.cli.schema import migrate_command
from headrace.cli.status import skip_command, status_command

DEBUG = "--debug"

app = typer.Typer(
    name="headrace",
    help="Events in PostgreSQL, routed once to the partition they belong to, each partition worked in order.",
    epilog="Start with: headrace demo",
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


def _add(name: str, command: object, *examples: str) -> None:
    app.command(name, epilog="\n\n".join(f"Example: {example}" for example in examples), no_args_is_help=False)(command)  # type: ignore[type-var]


_add(
    "migrate",
    migrate_command,
    "headrace migrate --dsn postgresql://owner@localhost/shop",
    "headrace migrate --grants shop_worker | psql shop",
)
_add("import", import_command, "headrace import orders.jsonl.gz", "zcat *.gz | headrace import -")
_add("setup", setup_command, "headrace setup shop.read_models:app orders_by_customer")
_add("boot", boot_command, "headrace boot shop.read_models:app --limit 10000")
_add("run", run_command, "HEADRACE_APP=shop.read_models:app headrace run --group mails")
_add(
    "worker",
    worker_command,
    "headrace worker shop.read_models:app --lanes 4",
    "headrace worker shop.read_models:app --until-caught-up --timeout 600",
)
_add("wait", wait_command, "headrace wait orders_by_customer --position 1204 --timeout 5")
_add("status", status_command, "headrace status", "headrace status orders_by_customer --partitions")
_add("skip", skip_command, "headrace skip orders_by_customer --position 1204 --why 'a key of 2 kB'")
_add("demo", demo_command, "headrace demo --events 20000 --workers 3")
app.add_typer(failures_app)


def main() -> NoReturn:
    """Run the command line and leave the process."""
    arguments = sys.argv[1:]
    # Wherever it stands, up to a bare --: people add it at the end of what failed.
    named = arguments[: arguments.index("--")] if "--" in arguments else arguments
    debug = DEBUG in named
    if debug:
        arguments.remove(DEBUG)
    guarded(lambda: app(arguments, prog_name="headrace"), debug=debug)
