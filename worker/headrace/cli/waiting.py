"""`headrace wait`: until a subscription has handled what a script has just appended."""

import time
from typing import Annotated

import typer

from headrace.cli.completing import subscription_names
from headrace.cli.ending import ExitCode
from headrace.cli.execution import run
from headrace.cli.options import DsnOption, KeyOption, OutputOption, SchemaOption, TimeoutOption, settings_with
from headrace.cli.output import OutputForm, duration, print_json, say, shown
from headrace.domain.ids import Address
from headrace.runtime.operations import open_operations
from headrace.runtime.waiting import wait_for
from headrace.settings import Settings
from headrace.telemetry.logs import configure_logging


def wait_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A subscription, or NAME#KEY for one partition of it.",
            autocompletion=subscription_names,
        ),
    ],
    position: Annotated[
        int | None, typer.Option("--position", min=0, help="Up to here; default: all that is in the log now.")
    ] = None,
    key: KeyOption = None,
    timeout: TimeoutOption = None,
    dsn: DsnOption = None,
    schema: SchemaOption = None,
    output: OutputOption = OutputForm.TEXT,
) -> None:
    """Wait until a subscription has handled everything up to a position."""
    settings = settings_with(dsn=dsn, schema_name=schema)
    raise typer.Exit(run(_wait(settings, Address.parse(name, key), position, timeout, output)))


async def _wait(
    settings: Settings, address: Address, position: int | None, timeout: float | None, output: OutputForm
) -> ExitCode:
    configure_logging("console", "warning")
    began = time.monotonic()
    async with open_operations(settings) as operations:
        await wait_for(operations, address.name, position, address.key, timeout)
    seconds = time.monotonic() - began
    if output is OutputForm.JSON:
        print_json(
            {"subscription": address.name, "key": address.key, "position": position, "seconds": round(seconds, 3)}
        )
    else:
        where = "caught up" if position is None else f"at position {position} or further"
        say(f"{shown(str(address))}: {where} ({duration(seconds)})")
    return ExitCode.DONE
