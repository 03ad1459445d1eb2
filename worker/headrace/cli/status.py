"""`headrace status` and `headrace skip`: how subscriptions stand, why one does not move, and past what it may go."""

from dataclasses import replace
from typing import Annotated

import typer

from headrace.cli.board import detail_lines, partition_lines, status_lines
from headrace.cli.ending import ExitCode
from headrace.cli.execution import run
from headrace.cli.looks import Look, look, look_json
from headrace.cli.options import (
    DsnOption,
    NameArgument,
    NamesArgument,
    OutputOption,
    SchemaOption,
    settings_with,
    with_standard_input,
)
from headrace.cli.output import OutputForm, complain, console, print_json, print_lines, say, shown, width_of
from headrace.domain.ids import Position, checked_name
from headrace.runtime.operations import open_operations, who_asks
from headrace.settings import Settings

PARTITIONS_SHOWN = 100


def status_command(
    names: NamesArgument = None,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Also the partitions that have work, furthest behind first.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="At most so many partitions of each.")
    ] = PARTITIONS_SHOWN,
    dsn: DsnOption = None,
    schema: SchemaOption = None,
    output: OutputOption = OutputForm.TEXT,
) -> None:
    """Show how subscriptions stand, and the reason when one stands still."""
    settings = settings_with(dsn=dsn, schema_name=schema)
    raise typer.Exit(run(_status(settings, with_standard_input(names), limit if partitions else 0, output)))


def skip_command(
    name: NameArgument,
    position: Annotated[int, typer.Option("--position", min=1, help="The event that has no usable key.")],
    why: Annotated[str, typer.Option("--why", help="A reason, kept in the audit.")] = "",
    dsn: DsnOption = None,
    schema: SchemaOption = None,
    output: OutputOption = OutputForm.TEXT,
) -> None:
    """Pass over an event that no key can be made for. Audited; only while the subscription stands still.

    To drop the event at which one key fails: headrace failures skip.
    """
    settings = settings_with(dsn=dsn, schema_name=schema)
    raise typer.Exit(run(_skip(settings, checked_name(name), Position(position), why, output)))


async def _status(settings: Settings, names: list[str] | None, limit: int, output: OutputForm) -> ExitCode:
    async with open_operations(settings) as operations:
        seen = await look(operations, names, limit)
    if output is OutputForm.JSON:
        print_json(look_json(seen))
    elif seen.standings:
        _print(seen, in_detail=bool(names))
    else:
        say("there is no subscription yet: start `headrace worker`, or run `headrace setup`")
    if seen.problem is not None:
        complain(seen.problem)
        return ExitCode.USAGE
    return ExitCode.DONE


async def _skip(settings: Settings, name: str, position: Position, why: str, output: OutputForm) -> ExitCode:
    async with open_operations(settings) as operations:
        await operations.skipping.pass_over(name, position, who_asks(), why)
    if output is OutputForm.JSON:
        print_json({"subscription": name, "skipped": position})
    else:
        say(f"{shown(name)}: event {position} is passed over, a worker goes on behind it")
    return ExitCode.DONE


def _print(seen: Look, *, in_detail: bool) -> None:
    out = console()
    width = width_of(out)
    looks = [replace(seen, standings=[standing]) for standing in seen.standings] if in_detail else [seen]
    for one in looks:
        print_lines(status_lines(one, width), out)
        if in_detail:
            print_lines(detail_lines(one, one.standings[0], width), out)
    for name, partitions in seen.partitions.items():
        say()
        print_lines(partition_lines(name, partitions, width), out)
