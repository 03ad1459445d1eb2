"""`headrace dev`: an app at work while it is written, on a PostgreSQL of its own."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.board import status_lines
from headrace.cli.ending import ExitCode
from headrace.cli.execution import run
from headrace.cli.looks import Look, look
from headrace.cli.options import SchemaOption, settings_with
from headrace.cli.output import BAD, QUIET, coloured, console, print_lines, say, shown, warn, width_of
from headrace.cli.reasons import standing_word
from headrace.domain.errors import UsageError
from headrace.ports.failures import Failure
from headrace.runtime.dev.course import Course, Listener
from headrace.runtime.dev.database import DevDatabase, dev_database
from headrace.runtime.operations import Operations
from headrace.settings import Settings
from headrace.telemetry.redaction import shown_key

MOST_ERRORS = 3
LONGEST_ERROR = 4000


def dev_command(
    app: Annotated[
        str | None,
        typer.Argument(metavar="APP", help="module:attribute; default: HEADRACE_APP.", show_default=False),
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option(
            "--events",
            metavar="FILE",
            help="Append the events of this JSON Lines file, and those that are added to it.",
            show_default=False,
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what the kept database holds.")] = False,
    dsn: Annotated[
        str | None,
        typer.Option(
            "--dsn", metavar="URL", help="This database instead; HEADRACE_DSN is not looked at.", show_default=False
        ),
    ] = None,
    schema: SchemaOption = None,
) -> None:
    """Run an app on a PostgreSQL of its own; saved files are taken up at once, and the status shows live.

    The database is kept in .headrace/ of the current folder and ends with this command.
    """
    if events is not None and not events.is_file():
        raise UsageError(f"{events} is no file: --events takes events as JSON Lines, as headrace import does")
    if dsn is not None:
        if fresh:
            raise UsageError("--fresh is for the database in .headrace/: with --dsn nothing is forgotten")
        raise typer.Exit(_dev(settings_with(app=app, dsn=dsn, schema_name=schema), events))
    settings_with(app=app).required_app()
    say("starting PostgreSQL …")
    with dev_database(Path.cwd(), fresh=fresh) as database:
        _introduce(database)
        raise typer.Exit(_dev(settings_with(app=app, dsn=database.dsn, schema_name=schema), events, database))


def _introduce(database: DevDatabase) -> None:
    say(f"PostgreSQL {database.major} runs. From another terminal:")
    say(f"  export HEADRACE_DSN={database.dsn}")
    if database.kept is None:
        warn("PostgreSQL's account cannot enter this folder, so the database is gone at the end")


def _dev(settings: Settings, events: Path | None, database: DevDatabase | None = None) -> ExitCode:
    listener = Listener(_tell, warn, _status_teller())
    settings.required_app()
    return run(Course(settings, Path.cwd(), events and events.absolute(), listener, database).run())


def _tell(sentence: str) -> None:
    say(sentence)
    sys.stdout.flush()  # in a pipe, too, it is told when it happens


def _status_teller() -> Callable[[Operations], Awaitable[None]]:
    """Return what prints the status whenever it has become another one, and each error once, with where it is from."""
    before: object = None
    errors: set[str] = set()

    async def show(operations: Operations) -> None:
        nonlocal before
        seen = await look(operations, None)
        # Between two workers there is none for a moment; one that has ended for good is told of elsewhere.
        if not any(standing.workers for standing in seen.standings) or (now := _essence(seen)) == before:
            return
        before = now
        out = console()
        say(coloured(f"{seen.at:%H:%M:%S}", QUIET))
        print_lines(status_lines(seen, width_of(out)), out)
        for failure in await _unseen(operations, seen, errors):
            say(coloured(f"{shown(failure.subscription)}#{shown_key(failure.key)} at {failure.position}:", BAD))
            say(shown(failure.error, LONGEST_ERROR))
        sys.stdout.flush()

    return show


async def _unseen(operations: Operations, seen: Look, errors: set[str]) -> list[Failure]:
    """Return failures with errors that were not shown yet, a few at a time; a thousand keys may have the same."""
    found: list[Failure] = []
    if any(standing.parked or standing.backing_off for standing in seen.standings):
        async for failure in operations.failures.list():
            if failure.error not in errors:
                errors.add(failure.error)
                found.append(failure)
            if len(found) == MOST_ERRORS:
                break
    return found


def _essence(seen: Look) -> list[object]:
    """Return what makes a status another one: not how long something has lasted by now."""
    return [
        (s.subscription, s.status, s.position, s.inbox, s.parked, s.backing_off, standing_word(s).partition(" ")[0])
        for s in seen.standings
    ]
