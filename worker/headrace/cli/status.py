"""`headrace status` and `headrace skip`: how subscriptions stand, why one does not move, and past what it may go."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from headrace.cli.ending import ExitCode
from headrace.cli.execution import run
from headrace.cli.options import DsnOption, OutputOption, SchemaOption, settings_with
from headrace.cli.output import (
    Cell,
    OutputForm,
    coloured,
    complain,
    count,
    duration,
    print_json,
    print_rows,
    say,
    shown,
)
from headrace.cli.reasons import reasons_of, standing_word
from headrace.domain.errors import NotExact, NotFound
from headrace.domain.ids import Position, checked_name
from headrace.domain.subscription import Status
from headrace.ports.horizon import HolderReport
from headrace.ports.status import LiveWorker, PartitionStanding, Standing
from headrace.runtime.operations import Operations, open_operations, who_asks
from headrace.settings import Settings
from headrace.telemetry.redaction import shown_key

PARTITIONS_SHOWN = 100
COLOURS = {
    Status.ACTIVE: "green",
    Status.BOOTING: "cyan",
    Status.NEW: "cyan",
    Status.PAUSED: "yellow",
    Status.ERROR: "bold red",
    Status.FAILED: "bold red",
}


@dataclass(frozen=True, slots=True)
class Look:
    """Everything that one look at a database found."""

    standings: list[Standing]
    partitions: dict[str, list[PartitionStanding]]
    workers: list[LiveWorker]
    holder: HolderReport | None
    problem: str | None


def status_command(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME…]", show_default=False)] = None,
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
    raise typer.Exit(run(_status(settings, names or None, limit if partitions else 0, output)))


def skip_command(
    name: Annotated[str, typer.Argument(metavar="NAME")],
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
        look = await _look(operations, names, limit)
        now = operations.clock.now()
    holder = None if look.holder is None else _holder(look.holder)
    reasons = {s.subscription: reasons_of(s, holder, now) for s in look.standings}
    if output is OutputForm.JSON:
        print_json(_as_json(look, reasons))
    elif look.standings:
        _print(look, reasons)
    else:
        say("there is no subscription yet: start `headrace worker`, or run `headrace setup`")
    if look.problem is not None:
        complain(look.problem)
        return ExitCode.USAGE
    return ExitCode.DONE


async def _look(operations: Operations, names: list[str] | None, limit: int) -> Look:
    standings = await operations.status.standings(names)
    missing = set(names or ()) - {standing.subscription for standing in standings}
    if missing:
        known = ", ".join(s.subscription for s in await operations.status.standings()) or "none"
        raise NotFound(f"there is no subscription {', '.join(map(repr, sorted(missing)))}; there is {known}")
    partitions = {}
    if limit:
        partitions = {s.subscription: await operations.status.partitions(s.subscription, limit) for s in standings}
    holder, problem = None, None
    try:
        holder = await operations.who_holds()
    except NotExact as error:
        problem = str(error)
    return Look(standings, partitions, await operations.status.workers(), holder, problem)


async def _skip(settings: Settings, name: str, position: Position, why: str, output: OutputForm) -> ExitCode:
    async with open_operations(settings) as operations:
        await operations.skipping.pass_over(name, position, who_asks(), why)
    if output is OutputForm.JSON:
        print_json({"subscription": name, "skipped": position})
    else:
        say(f"{shown(name)}: event {position} is passed over, a worker goes on behind it")
    return ExitCode.DONE


def _print(look: Look, reasons: dict[str, list[str]]) -> None:
    notes = [[coloured(f"  {reason}", "yellow") for reason in reasons[s.subscription]] for s in look.standings]
    print_rows([_row(standing) for standing in look.standings], notes)
    for name, partitions in look.partitions.items():
        say()
        say(coloured(f"{name}: {count(len(partitions), 'partition')} with work, furthest behind first", "bold"))
        print_rows([_partition_row(partition) for partition in partitions])


def _holder(report: HolderReport) -> str:
    age = "" if report.age is None else f", for {duration(report.age)} now"
    return shown(str(report), 500) + age


def _row(standing: Standing) -> list[Cell]:
    parked = f" (parked: {standing.parked})" if standing.parked else ""
    unrouted = f"unrouted: {standing.unrouted}  " if standing.unrouted else ""
    workers = count(standing.workers, "worker") if standing.workers else "no worker"
    return [
        coloured(shown(standing.subscription), "bold"),
        coloured(str(standing.status), COLOURS.get(standing.status, "")),
        f"{standing.position}{parked}",
        f"{unrouted}inbox: {standing.inbox} in {standing.pending_partitions}",
        standing_word(standing),
        workers,
    ]


def _partition_row(partition: PartitionStanding) -> list[Cell]:
    return [
        f"  #{shown_key(partition.key)}",
        f"at {partition.position}",
        count(partition.backlog, "event"),
        _partition_word(partition),
        shown((partition.error or "").partition("\n")[0], 100),
    ]


def _partition_word(partition: PartitionStanding) -> str:
    if partition.hold is not None:
        return f"held: {shown(partition.hold, 60)}" if partition.hold else "held"
    if partition.worker is not None:
        return f"leased by {shown(partition.worker, 60)}"
    return str(partition.failure) if partition.failure is not None else "due"


def _as_json(look: Look, reasons: dict[str, list[str]]) -> dict[str, Any]:
    subscriptions = []
    for standing in look.standings:
        entry = asdict(standing) | {"inbox": standing.inbox, "backlog": standing.backlog}
        entry |= {"standing": standing_word(standing), "reasons": reasons[standing.subscription]}
        if standing.subscription in look.partitions:
            entry["partitions"] = [asdict(partition) for partition in look.partitions[standing.subscription]]
        subscriptions.append(entry)
    return {
        "subscriptions": subscriptions,
        "workers": [asdict(worker) for worker in look.workers],
        "horizon": {"held_by": None if look.holder is None else asdict(look.holder), "problem": look.problem},
    }
