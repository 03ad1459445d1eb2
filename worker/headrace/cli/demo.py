"""`headrace demo`: the whole of it on a PostgreSQL of its own, checked against plain SQL, nothing left behind."""

import time
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.demo_show import show_on
from headrace.cli.ending import ExitCode
from headrace.cli.execution import run
from headrace.cli.options import OutputOption
from headrace.cli.output import Cell, OutputForm, coloured, count, duration, print_json, print_rows, say, shown
from headrace.runtime.demo.course import Course, Ending
from headrace.runtime.demo.figures import Mark, StoryLine
from headrace.runtime.demo.scene import Script, stage
from headrace.runtime.demo.verdict import Verdict


def demo_command(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="A log of yours, JSON Lines (.gz too), in place of the shop.", show_default=False
        ),
    ] = None,
    events: Annotated[
        int | None,
        typer.Option(
            "--events",
            min=1,
            help="How long the shop's log is, or how much of FILE is used.",
            show_default="100000; all",
        ),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, max=8, help="How many worker processes.")] = 2,
    seed: Annotated[int, typer.Option("--seed", help="Another seed is another shop.")] = 1,
    live: Annotated[
        bool | None,
        typer.Option("--live/--plain", help="A screen or plain lines; default: a screen on a terminal with colours."),
    ] = None,
    output: OutputOption = OutputForm.TEXT,
) -> None:
    """See it work: a made-up shop, an embedded PostgreSQL, two workers, and a verdict by plain SQL.

    Needs no database and leaves nothing behind. One worker is killed on the way, and one key fails until it is mended.
    """
    raise typer.Exit(run(_demo(Script(events, seed, workers, file), live, output)))


async def _demo(script: Script, live: bool | None, output: OutputForm) -> ExitCode:
    started = time.monotonic()
    aside = output is OutputForm.JSON
    plot = script.plot()
    with show_on(stderr=aside, live=live) as show:
        show.tell(StoryLine(0.0, Mark.WAIT, "an embedded PostgreSQL is started"))
        with stage(plot) as (cluster, scene):
            ready = time.monotonic() - started
            show.tell(StoryLine(ready, Mark.STEP, f"PostgreSQL {cluster.major} runs on port {cluster.port}"))
            ending = await Course(scene, script, show, started).play()
    seconds = time.monotonic() - started
    if output is OutputForm.JSON:
        print_json([_as_json(verdict) for verdict in ending.verdicts])
    else:
        _print(ending)
    say(f"everything is taken down again ({duration(seconds)} in all)", stderr=aside)
    right = "verdict: every read model is exactly what SQL over the log says"
    said = coloured(right, "bold green") if ending.is_right else coloured("verdict: WRONG, see above", "bold red")
    say(said, stderr=aside)
    return ExitCode.DONE if ending.is_right else ExitCode.ERRORS


def _print(ending: Ending) -> None:
    say()
    notes = [[coloured(f"   {verdict.note}", "dim")] if verdict.note else [] for verdict in ending.verdicts]
    print_rows(_table(ending.verdicts), [[], *notes])
    say()
    rate = f", {ending.handled / ending.seconds:,.0f} a second" if ending.seconds else ""
    say(
        f"{count(ending.events, 'event')}, {count(ending.handled, 'delivery', 'deliveries')} to"
        f" {count(len(ending.verdicts), 'subscription')} in {duration(ending.seconds)}{rate},"
        " import and what went wrong included"
    )
    if ending.taken_over_after is not None:
        keys = count(ending.taken_over_keys or 0, "key")
        after = f"{ending.taken_over_after:.1f} s"
        say(f"1 worker killed: {keys} taken over after {after}, nothing lost, nothing counted twice")
    if ending.parked is not None:
        behind = count(ending.parked.waiting, "event")
        say(f"1 key parked: {shown(ending.parked.key, 60)}, with {behind} in order behind it until the fix")


def _table(verdicts: tuple[Verdict, ...]) -> list[list[Cell]]:
    rows: list[list[Cell]] = [["", "read model", "kind", "rows", "handled", "by SQL", "differences"]]
    for verdict in verdicts:
        mark = coloured("✓", "green") if verdict.right else coloured("✗", "bold red")
        figures = [f"{number:,}" for number in (verdict.rows, verdict.events, verdict.wanted, verdict.differences)]
        rows.append([mark, verdict.name, verdict.shape, *figures])
    return rows


def _as_json(verdict: Verdict) -> dict[str, object]:
    return {
        "subscription": verdict.name,
        "rows": verdict.rows,
        "events": verdict.events,
        "wanted": verdict.wanted,
        "differences": verdict.differences,
        "right": verdict.right,
    }
