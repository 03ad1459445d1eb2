"""`headrace migrate`: creates or upgrades the schema, or prints what a worker's role must be granted."""

import sys
from typing import Annotated

import typer

from headrace.cli.ending import ExitCode
from headrace.cli.execution import run
from headrace.cli.options import DsnOption, OutputOption, SchemaOption, settings_with
from headrace.cli.output import OutputForm, print_json, say
from headrace.cli.progress import named_steps, watched
from headrace.settings import Settings
from headrace.store.migrate import grants, migrate


def migrate_command(
    dsn: DsnOption = None,
    schema: SchemaOption = None,
    grant_role: Annotated[
        str | None,
        typer.Option(
            "--grants", metavar="ROLE", help="Print the GRANT statements for a role that runs workers, and do no more."
        ),
    ] = None,
    output: OutputOption = OutputForm.TEXT,
) -> None:
    """Create or upgrade the schema. Run it as the role that shall own it; safe to run again."""
    settings = settings_with(dsn=dsn, schema_name=schema)
    if grant_role is not None:
        sys.stdout.write(grants(grant_role, settings.schema_name))
        return
    raise typer.Exit(run(_migrate(settings, output)))


async def _migrate(settings: Settings, output: OutputForm) -> ExitCode:
    with named_steps(watched()) as tell:
        applied = await migrate(settings.required_dsn(), settings.schema_name, pooler=settings.pooler, tell=tell)
    if output is OutputForm.JSON:
        print_json({"schema": settings.schema_name, "applied": applied})
    elif applied:
        say(f"schema {settings.schema_name}: applied {', '.join(applied)}")
    else:
        say(f"schema {settings.schema_name}: up to date")
    return ExitCode.DONE
