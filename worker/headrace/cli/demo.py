"""`headrace demo`: the whole of it on a PostgreSQL of its own, checked against plain SQL, nothing left behind."""

import time
from collections.abc import Callable
from typing import Annotated

import typer

from headrace.cli.ending import ExitCode
from headrace.cli.execution import run
from headrace.cli.options import OutputOption
from headrace.cli.output import Cell, OutputForm, coloured, count, duration, print_json, print_rows, say
from headrace.runtime.demo.scene import Script, Stage, stage
from headrace.runtime.demo.verdict import Verdict
from headrace.runtime.importing import Imported


def demo_command(
    events: Annotated[int, typer.Option("--events", min=1, help="How long the shop's log is.")] = 100_000,
    workers: Annotated[int, typer.Option("--workers", min=1, max=8, help="How many worker processes.")] = 2,
    seed: Annotated[int, typer.Option("--seed", help="Another seed is another shop.")] = 1,
    output: OutputOption = OutputForm.TEXT,
) -> None:
    """See it work: a made-up shop, an embedded PostgreSQL, two workers, and a verdict by plain SQL.

    Needs no database and leaves nothing behind.
    """
    raise typer.Exit(run(_demo(Script(events, seed, workers), output)))


async def _demo(script: Script, output: OutputForm) -> ExitCode:
    tell = _teller(output)
    started = time.monotonic()
    tell("starting an embedded PostgreSQL …")
    with stage() as (cluster, scene):
        tell(f"PostgreSQL {cluster.major} runs on port {cluster.port}")
        verdicts = await _play(scene, script, tell)
    tell(f"everything is taken down again ({duration(time.monotonic() - started)} in all)")
    if output is OutputForm.JSON:
        print_json([_as_json(verdict) for verdict in verdicts])
    right = all(verdict.right for verdict in verdicts)
    tell("verdict: every read model is exactly what SQL over the log says" if right else "verdict: WRONG, see above")
    return ExitCode.DONE if right else ExitCode.ERRORS


async def _play(scene: Stage, script: Script, tell: Callable[[str], None]) -> list[Verdict]:
    began = time.monotonic()

    def note(done: Imported) -> None:
        if done.events % 25_000 == 0 and done.events < script.events:
            tell(f"  {done.events:,} events imported")

    filled = await scene.fill(script, note)
    tell(f"{count(filled.events, 'event')} of a made-up shop imported ({duration(time.monotonic() - began)})")
    pids = scene.start_workers(script.workers)
    tell(f"{count(len(pids), 'worker process', 'worker processes')} started, pid {' and '.join(map(str, pids))}")
    began = time.monotonic()
    await scene.wait_for_workers(_ticker(tell))
    tell(f"the workers have caught up and ended ({duration(time.monotonic() - began)})")
    verdicts = await scene.judge()
    if tell is say:
        print_rows(_table(verdicts))
    return verdicts


def _teller(output: OutputForm) -> Callable[[str], None]:
    if output is OutputForm.JSON:
        return lambda text: say(text, stderr=True)
    return say


def _ticker(tell: Callable[[str], None]) -> Callable[[], None]:
    began = last = time.monotonic()

    def tick() -> None:
        nonlocal last
        if time.monotonic() - last >= 5:  # noqa: PLR2004 - seconds between signs of life
            last = time.monotonic()
            tell(f"  working for {last - began:.0f} s")

    return tick


def _table(verdicts: list[Verdict]) -> list[list[Cell]]:
    rows: list[list[Cell]] = [["", "read model", "shape", "rows", "events handled", "by SQL", "differences"]]
    for verdict in verdicts:
        mark = coloured("✓", "green") if verdict.right else coloured("✗", "bold red")
        figures = [f"{number:,}" for number in (verdict.rows, verdict.events, verdict.wanted, verdict.differences)]
        rows.append([mark, verdict.name, verdict.shape, *figures, verdict.note])
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
