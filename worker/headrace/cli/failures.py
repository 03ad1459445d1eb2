"""`headrace failures`: the keys that fail, what they wait for, and what a person can do about them."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from headrace.cli.completing import subscription_names
from headrace.cli.ending import ExitCode
from headrace.cli.execution import run
from headrace.cli.helping import Command, CommandGroup
from headrace.cli.options import (
    DsnOption,
    KeyOption,
    NamesArgument,
    OutputOption,
    SchemaOption,
    settings_with,
    with_standard_input,
)
from headrace.cli.output import (
    BAD,
    CARE,
    QUIET,
    Cell,
    OutputForm,
    coloured,
    console,
    count,
    duration,
    print_json,
    print_rows,
    say,
    shown,
)
from headrace.domain.errors import BadInput, NotFound
from headrace.domain.ids import Address, PartitionKey, Position
from headrace.ports.failures import Failure
from headrace.ports.work import FailureState
from headrace.runtime.operations import Operations, open_operations, who_asks
from headrace.settings import Settings
from headrace.telemetry.redaction import shown_key

MOST_LISTED = 1000
LONGEST_LISTED = 160
_HEADING = re.compile(r"\d+ validation errors? for ")
COLOURS = {FailureState.BACKING_OFF: CARE, FailureState.PARKED: BAD, FailureState.WAITING: f"bold {BAD}"}

failures_app = typer.Typer(
    name="failures",
    cls=CommandGroup,
    help="Keys that fail: list, look, try again, or skip an event.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)

AddressArgument = Annotated[
    str,
    typer.Argument(metavar="NAME#KEY", help="A partition; or NAME with --key KEY.", autocompletion=subscription_names),
]
WhyOption = Annotated[str, typer.Option("--why", help="A reason, kept in the audit.")]


@failures_app.command("list", cls=Command, epilog="Example: headrace failures list orders_by_customer --state parked")
def list_command(
    names: NamesArgument = None,
    state: Annotated[
        list[FailureState] | None,
        typer.Option("--state", help="Only keys in this state; repeatable.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = MOST_LISTED,
    dsn: DsnOption = None,
    schema: SchemaOption = None,
    output: OutputOption = OutputForm.TEXT,
) -> None:
    """List failing keys: where they stand, what they wait for, why."""
    settings = settings_with(dsn=dsn, schema_name=schema)
    raise typer.Exit(run(_list(settings, with_standard_input(names), state or None, limit, output)))


@failures_app.command("show", cls=Command, epilog="Example: headrace failures show 'orders_by_customer#customer-17'")
def show_command(
    address: AddressArgument,
    key: KeyOption = None,
    dsn: DsnOption = None,
    schema: SchemaOption = None,
    output: OutputOption = OutputForm.TEXT,
) -> None:
    """Show one failing key, with the whole text of its error."""
    settings = settings_with(dsn=dsn, schema_name=schema)
    raise typer.Exit(run(_show(settings, Address.parse(address, key), output)))


@failures_app.command(
    "resume",
    cls=Command,
    epilog="Example: headrace failures resume orders_by_customer --why 'fixed in 1.4'\n\n"
    "Example: headrace failures resume - --why 'fixed in 1.4' < keys.txt",
)
def resume_command(
    addresses: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME|NAME#KEY",
            help="Which; or --all; - reads them from standard input, one a line.",
            autocompletion=subscription_names,
            show_default=False,
        ),
    ] = None,
    key: KeyOption = None,
    every: Annotated[bool, typer.Option("--all", help="All failing keys of all subscriptions.")] = False,
    why: WhyOption = "",
    dsn: DsnOption = None,
    schema: SchemaOption = None,
    output: OutputOption = OutputForm.TEXT,
) -> None:
    """Try failing keys again now, with a fresh budget of attempts."""
    settings = settings_with(dsn=dsn, schema_name=schema)
    if every == bool(addresses):
        raise BadInput("say which keys: NAME, NAME#KEY, or --all for every failing key of the database")
    chosen = [Address.parse(text, key) for text in with_standard_input(addresses) or ()]
    raise typer.Exit(run(_resume(settings, chosen, why, output)))


@failures_app.command(
    "skip", cls=Command, epilog="Example: headrace failures skip 'orders_by_customer#customer-17' --why 'test data'"
)
def skip_command(
    address: AddressArgument,
    key: KeyOption = None,
    position: Annotated[
        int | None, typer.Option("--position", min=1, help="Only if this is the failing event.", show_default=False)
    ] = None,
    why: WhyOption = "",
    dsn: DsnOption = None,
    schema: SchemaOption = None,
    output: OutputOption = OutputForm.TEXT,
) -> None:
    """Drop the failing event of one key, audited; what waits behind it goes on."""
    settings = settings_with(dsn=dsn, schema_name=schema)
    raise typer.Exit(run(_skip(settings, Address.parse(address, key), position, why, output)))


async def _list(
    settings: Settings,
    names: Sequence[str] | None,
    states: Sequence[FailureState] | None,
    limit: int,
    output: OutputForm,
) -> ExitCode:
    found: list[Failure] = []
    async with open_operations(settings) as operations:
        async for failure in operations.failures.list(names, states):
            found.append(failure)
            if len(found) > limit:
                break
    if output is OutputForm.JSON:
        print_json([failure_json(failure) for failure in found[:limit]])
    elif found:
        print_rows([_row(failure) for failure in found[:limit]])
    else:
        say("no key fails")
    if len(found) > limit:
        say(f"there are more than {limit:,}: choose by NAME or --state, or raise --limit", stderr=True)
    return ExitCode.DONE


async def _show(settings: Settings, address: Address, output: OutputForm) -> ExitCode:
    async with open_operations(settings) as operations:
        address = await _keyed(operations, address)
        failure = await operations.failures.show(address)
    if output is OutputForm.JSON:
        print_json(failure_json(failure))
        return ExitCode.DONE
    facts = {
        "key": shown(str(Address(failure.subscription, failure.key)), 1500),
        "state": str(failure.state),
        "position": f"{failure.position}",
        "event type": shown(failure.event_type or "unknown"),
        "stream": shown(failure.stream or "unknown"),
        "attempts": f"{failure.attempts}",
        "class": failure.failure_class,
        "first failed": f"{failure.first_failed_at:%Y-%m-%d %H:%M:%S %Z}",
        "last failed": f"{failure.failed_at:%Y-%m-%d %H:%M:%S %Z}",
        "next try": _next(failure),
        "waiting": count(failure.waiting, "event"),
        "error": shown(failure.error_type),
    }
    print_rows([[coloured(name, QUIET), value] for name, value in facts.items()])
    console().print(shown(failure.error, 100_000), markup=False, emoji=False)
    return ExitCode.DONE


async def _resume(settings: Settings, chosen: Sequence[Address], why: str, output: OutputForm) -> ExitCode:
    resumed = leased = 0
    async with open_operations(settings) as operations:
        found = {one.name for one in await operations.catalog.find([address.name for address in chosen])}
        unknown = next((address.name for address in chosen if address.name not in found), None)
        if unknown is not None:
            raise NotFound(f"there is no subscription {unknown!r}; see headrace status")
        for address in chosen or (None,):
            names = None if address is None else [address.name]
            key = None if address is None else address.key
            done = await operations.failures.resume(names, key, who_asks(), why)
            resumed, leased = resumed + done.resumed, leased + done.leased
    if output is OutputForm.JSON:
        print_json({"resumed": resumed, "leased": leased})
    else:
        tried = f"; {count(leased, 'key is', 'keys are')} being tried at this moment" if leased else ""
        say(f"{count(resumed, 'key')} will be tried again now{tried}")
    return ExitCode.DONE


async def _skip(settings: Settings, address: Address, position: int | None, why: str, output: OutputForm) -> ExitCode:
    async with open_operations(settings) as operations:
        wanted = None if position is None else Position(position)
        address = await _keyed(operations, address)
        skipped = await operations.failures.skip(address, wanted, who_asks(), why)
    if output is OutputForm.JSON:
        print_json({"subscription": address.name, "key": address.key, "skipped": skipped})
    else:
        say(f"{shown(str(address), 1500)}: event {skipped} is skipped, the key goes on behind it")
    return ExitCode.DONE


def failure_json(failure: Failure) -> dict[str, Any]:
    """Return a failure as scripts get it; the names are stable."""
    return {
        "subscription": failure.subscription,
        "key": failure.key,
        "state": failure.state,
        "position": failure.position,
        "event_type": failure.event_type,
        "stream": failure.stream,
        "attempts": failure.attempts,
        "class": failure.failure_class,
        "error_type": failure.error_type,
        "error": failure.error,
        "first_failed_at": failure.first_failed_at,
        "failed_at": failure.failed_at,
        "next_retry_at": failure.next_retry_at,
        "waiting": failure.waiting,
    }


def _row(failure: Failure) -> list[Cell]:
    return [
        f"{failure.subscription}#{shown_key(failure.key)}",
        coloured(str(failure.state), COLOURS.get(failure.state, "")),
        f"at {failure.position}",
        shown(failure.event_type or "?", 40),
        count(failure.attempts, "attempt"),
        f"{failure.waiting:,} waiting",
        f"next try {_next(failure)}",
        shown(brief(failure.error), LONGEST_LISTED),
    ]


def brief(error: str) -> str:
    """Return the first line of an error; of a validation error, whose first line only counts, the first field too."""
    first, *more = error.strip().splitlines() or [""]
    if _HEADING.search(first) is None:
        return first
    return " ".join([first + ":", *(line.strip() for line in more[:2])]) if more else first


def _next(failure: Failure) -> str:
    if failure.next_retry_at is None:
        return "by hand: resume or skip"
    seconds = (failure.next_retry_at - datetime.now(UTC)).total_seconds()
    return f"in {duration(seconds)}" if seconds > 0 else "now"


async def _keyed(operations: Operations, address: Address) -> Address:
    """Return the address with its key: an unpartitioned subscription has one, the empty one."""
    if address.key is not None:
        return address
    name = address.name
    found = await operations.catalog.find([name])
    if found and found[0].partitioned:
        raise BadInput(f"the key is missing: write {name}#KEY; `headrace failures list {name}` has the keys that fail")
    return Address(name, PartitionKey(""))
