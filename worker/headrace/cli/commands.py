"""The commands by name: what the list of them says, and where each one is when somebody calls it.

A command line is started often and asked for one thing. So no module of a command is loaded before its command is
called, and this room must never import one by itself: the list needs a sentence of each, and has it here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
import typer.main

from headrace.cli.helping import Command


@dataclass(frozen=True, slots=True)
class Entry:
    """One command: the first paragraph of its help, where it is below `headrace.cli`, and examples."""

    summary: str
    place: str
    examples: tuple[str, ...] = ()


COMMANDS = {
    "migrate": Entry(
        "Create or upgrade the schema. Run it as the role that shall own it; safe to run again.",
        "schema:migrate_command",
        (
            "headrace migrate --dsn postgresql://owner@localhost/shop",
            "headrace migrate --grants shop_worker | psql shop",
        ),
    ),
    "import": Entry(
        "Append events from JSON Lines: stream, type, data; optional recorded_at, tags, metadata, event_id.",
        "importing:import_command",
        ("headrace import orders.jsonl.gz", "zcat *.gz | headrace import -"),
    ),
    "setup": Entry(
        "Set up what is new: declare it, run its @setup, decide where it starts.",
        "running:setup_command",
        ("headrace setup shop.read_models:app orders_by_customer",),
    ),
    "boot": Entry(
        "Bring what is booting up to where the log was when it was set up.",
        "running:boot_command",
        ("headrace boot shop.read_models:app --limit 10000",),
    ),
    "run": Entry(
        "Handle what active subscriptions have waiting, then end.",
        "running:run_command",
        ("HEADRACE_APP=shop.read_models:app headrace run --group mails",),
    ),
    "worker": Entry(
        "Set up and boot what is new, then work until SIGTERM; a second signal ends at once.",
        "running:worker_command",
        (
            "headrace worker shop.read_models:app --lanes 4",
            "headrace worker shop.read_models:app --until-caught-up --timeout 600",
        ),
    ),
    "wait": Entry(
        "Wait until a subscription has handled everything up to a position.",
        "waiting:wait_command",
        ("headrace wait orders_by_customer --position 1204 --timeout 5",),
    ),
    "status": Entry(
        "Show how subscriptions stand, and the reason when one stands still.",
        "status:status_command",
        ("headrace status", "headrace status orders_by_customer --partitions", "headrace status --output json"),
    ),
    "top": Entry(
        "Show the status live, until q or Ctrl-C; a plain table each time when piped.",
        "top:top_command",
        ("headrace top", "headrace top orders_by_customer --every 5"),
    ),
    "skip": Entry(
        "Pass over an event that no key can be made for. Audited; only while the subscription stands still.",
        "status:skip_command",
        ("headrace skip orders_by_customer --position 1204 --why 'a key of 2 kB'",),
    ),
    "demo": Entry(
        "See it work: a made-up shop, an embedded PostgreSQL, two workers, and a verdict by plain SQL.",
        "demo:demo_command",
        ("headrace demo --events 20000 --workers 3",),
    ),
    "new": Entry(
        "Make a small project to start from: a subscriber with its tests, a Makefile, an image, a manifest.",
        "new:new_command",
        ("headrace new shop",),
    ),
    "dev": Entry(
        "Run an app on a PostgreSQL of its own; saved files are taken up at once, and the status shows live.",
        "dev:dev_command",
        ("headrace dev shop.read_models:app", "headrace dev shop.read_models:app --events events.jsonl"),
    ),
    "completion": Entry(
        "Print what makes a shell complete commands, options and names of subscriptions.",
        "completing:completion_command",
        ("source <(headrace completion bash)",),
    ),
    "failures": Entry("Keys that fail: list, look, try again, or skip an event.", "failures:failures_app"),
}


class Deferred(Command):
    """Stands in the list for a command that is loaded when it is called."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return the context of the command itself, which from here on is the one that is run."""
        return loaded(str(self.name)).make_context(info_name, args, parent=parent, **extra)


def loaded(name: str) -> Any:
    """Load the command of this name, or the group of commands, and return it as the command line runs it."""
    entry = COMMANDS[name]
    module, _, attribute = entry.place.partition(":")
    # On demand: a command pays for what it needs itself, a database driver or a metrics client, and for nothing else.
    found = getattr(import_module(f"headrace.cli.{module}"), attribute)
    return typer.main.get_command(found if isinstance(found, typer.Typer) else _alone(name, found, entry))


def _alone(name: str, command: Callable[..., None], entry: Entry) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    app.command(name, cls=Command, epilog="\n\n".join(f"Example: {example}" for example in entry.examples))(command)
    return app
