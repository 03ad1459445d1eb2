"""`headrace setup / boot / run / worker`: the verbs of the engine, each until it is done."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TextIO, cast

import typer

from headrace.cli.completing import subscription_names
from headrace.cli.ending import ExitCode
from headrace.cli.execution import run
from headrace.cli.options import (
    AppOption,
    DsnOption,
    GroupOption,
    LimitOption,
    OutputOption,
    SchemaOption,
    TimeoutOption,
    settings_with,
    with_standard_input,
)
from headrace.cli.output import OutputForm, complain, count, print_json, say, shown
from headrace.cli.progress import CurrentStderr, Flushes, counted, watched
from headrace.domain.errors import UsageError
from headrace.domain.ids import Address
from headrace.engine.engine import Engine
from headrace.engine.results import RunResult
from headrace.runtime.app import App
from headrace.runtime.compose import open_engine
from headrace.runtime.operations import open_operations
from headrace.runtime.worker import Order, engine_options, run_worker
from headrace.settings import Settings
from headrace.subscribers.loader import load_app
from headrace.telemetry.fanout import Fanout
from headrace.telemetry.lines import LogObserver
from headrace.telemetry.logs import configure_logging

MOST_ERRORS_SHOWN = 20
TRACE = "\n\nTraceback"

NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="APP NAME",
        help="APP as module:attribute, unless --app or HEADRACE_APP says it; then subscriptions (default: all); "
        "- reads names from standard input, one a line.",
        autocompletion=subscription_names,
        show_default=False,
    ),
]
_APP = re.compile(r"[\w.]+:[\w.]+")


@dataclass(frozen=True, slots=True)
class Task:
    """What one run of a verb is about."""

    settings: Settings
    app: App
    names: list[str] | None
    groups: list[str] | None
    output: OutputForm


Verb = Callable[[Engine, list[str] | None, list[str] | None], Awaitable[RunResult]]


def setup_command(
    names: NamesArgument = None,
    app: AppOption = None,
    group: GroupOption = None,
    dsn: DsnOption = None,
    schema: SchemaOption = None,
    output: OutputOption = OutputForm.TEXT,
) -> None:
    """Set up what is new: declare it, run its @setup, decide where it starts."""
    task = _task(names, app, group, dsn, schema, output)
    raise typer.Exit(run(_do(task, "setup", lambda engine, *chosen: engine.setup(*chosen))))


def _until_done(what: str, verb: Callable[..., Awaitable[RunResult]], says: str) -> Callable[..., None]:
    """Return the command of a verb that handles events, which a limit can bound."""

    def command(
        names: NamesArgument = None,
        app: AppOption = None,
        group: GroupOption = None,
        limit: LimitOption = None,
        dsn: DsnOption = None,
        schema: SchemaOption = None,
        output: OutputOption = OutputForm.TEXT,
    ) -> None:
        task = _task(names, app, group, dsn, schema, output)
        raise typer.Exit(run(_do(task, what, lambda engine, *chosen: verb(engine, *chosen, limit=limit))))

    command.__doc__ = says
    return command


boot_command = _until_done("boot", Engine.boot, "Bring what is booting up to where the log was when it was set up.")
run_command = _until_done("run", Engine.run, "Handle what active subscriptions have waiting, then end.")


def worker_command(
    app: Annotated[
        str | None,
        typer.Argument(metavar="APP", help="module:attribute; default: HEADRACE_APP.", show_default=False),
    ] = None,
    subscriber: Annotated[
        list[str] | None,
        typer.Option(
            "--subscriber",
            metavar="NAME",
            help="Only this subscriber; repeatable.",
            autocompletion=subscription_names,
            show_default=False,
        ),
    ] = None,
    group: Annotated[str | None, typer.Option("--group", help="Only this group.", show_default=False)] = None,
    lanes: Annotated[
        int | None, typer.Option("--lanes", help="Claim groups that are worked on at once.", show_default="1")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", help="Port of probes and metrics; 0 takes any.", show_default="9090"),
    ] = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="End when all that is in the log has been handled.")
    ] = False,
    timeout: TimeoutOption = None,
    dsn: DsnOption = None,
    schema: SchemaOption = None,
    output: OutputOption = OutputForm.TEXT,
) -> None:
    """Set up and boot what is new, then work until SIGTERM; a second signal ends at once."""
    settings = settings_with(
        app=app,
        subscribers=tuple(subscriber) if subscriber else None,
        group=group,
        lanes=lanes,
        metrics_port=metrics_port,
        dsn=dsn,
        schema_name=schema,
    )
    settings.required_dsn()
    if timeout is not None and not until_caught_up:
        raise UsageError("--timeout is for --until-caught-up: a worker without it works until it is told to stop")
    order = Order(until_caught_up, timeout)
    try:
        result = run_worker(settings, _load(settings), order)
    except asyncio.CancelledError:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if not until_caught_up:
        raise typer.Exit(ExitCode.DONE)
    raise typer.Exit(_report(how_it_ended(result), result, output))


def app_and_names(names: list[str] | None, app: str | None) -> tuple[Settings, list[str] | None]:
    """Return settings with the application named, and the names that are left.

    The first argument is the application when neither --app nor HEADRACE_APP names one and it looks like one.
    """
    given = list(names or ())
    settings = settings_with(app=app)
    if settings.app is None and given and _APP.fullmatch(given[0]):
        settings = settings_with(app=given.pop(0))
    settings.required_app()
    return settings, with_standard_input(given)


def _task(
    names: list[str] | None,
    app: str | None,
    groups: list[str] | None,
    dsn: str | None,
    schema: str | None,
    output: OutputForm,
) -> Task:
    named, left = app_and_names(names, app)
    settings = settings_with(app=named.app, dsn=dsn, schema_name=schema)
    settings.required_dsn()
    configure_logging("console", "warning", cast("TextIO", CurrentStderr()))
    return Task(settings, _load(settings), left, groups, output)


def _load(settings: Settings) -> App:
    found = load_app(settings.required_app())
    if not isinstance(found, App):
        raise UsageError(f"{settings.app} is an App of another module: make it of headrace.App")
    return found


async def _do(task: Task, what: str, verb: Verb) -> ExitCode:
    options = engine_options(task.settings)
    out = watched()
    with counted(what, None if out is None else await _waiting(task), out) as step:
        observer = Fanout([LogObserver(), Flushes(step)])
        async with open_engine(task.app, task.settings.required_dsn(), options, observer) as engine:
            result = await verb(engine, task.names, task.groups)
    return _report(what, result, task.output)


async def _waiting(task: Task) -> int | None:
    """Return how many events wait for the subscriptions of a task; None when there is none, or nothing is known yet."""
    async with open_operations(task.settings) as operations:
        standings = await operations.status.standings(task.names)
    return sum(s.backlog for s in standings if task.groups is None or s.group_name in task.groups) or None


def _report(what: str, result: RunResult, output: OutputForm) -> ExitCode:
    if output is OutputForm.JSON:
        print_json(_as_json(result))
    else:
        done = "done" if what == "setup" else f"{count(result.processed, 'event')} handled"
        say(f"{what}: {done}{_rest(result)}")
        for sentence in _sentences(result)[:MOST_ERRORS_SHOWN]:
            complain(sentence)
        if len(result.errors) > MOST_ERRORS_SHOWN:
            complain("there are more of them; see headrace failures list")
    if result.errors:
        return ExitCode.ERRORS
    return ExitCode.NOT_FINISHED if result.has_pending else ExitCode.DONE


def how_it_ended(result: RunResult) -> str:
    """Return in a word or two how a worker ended that was to work until all is handled."""
    if result.has_pending:
        return "stopped"
    return "not caught up" if result.blocked else "caught up"


def _sentences(result: RunResult) -> list[str]:
    """Return the errors of a result, each key with its last one; where it came from is in the ledger."""
    latest = {}
    for error in result.errors:
        where = error.subscription if error.key is None else str(Address(error.subscription, error.key))
        latest[where, error.position] = f"{shown(where)}: {error.text.partition(TRACE)[0].strip()}"
    return list(latest.values())


def _rest(result: RunResult) -> str:
    if result.all_locked:
        return ", what is left is in the hands of other workers"
    if result.has_pending:
        return ", work is left"
    return ", the rest waits for a person" if result.blocked else ""


def _as_json(result: RunResult) -> dict[str, Any]:
    return {
        "processed": result.processed,
        "has_pending": result.has_pending,
        "all_locked": result.all_locked,
        "errors": [
            {"subscription": e.subscription, "key": e.key, "position": e.position, "error": e.text}
            for e in result.errors
        ],
    }
