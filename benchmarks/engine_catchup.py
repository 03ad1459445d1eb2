"""A backlog through the real engine, beside the straight-line script and floor F2.

Two shapes. Heavy: every key has 25 events waiting. Light: the partitions are there from before, and each has 1.1 events
in all, so no batch can hold more of it. One worker with one lane, in its own process.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.loop import run
from benchmarks.measured import Measured, Rounds, interleaved
from benchmarks.queries import queries_of
from benchmarks.server import Server, append, connected, server
from benchmarks.straight_line import (
    add_size,
    create_schemas,
    forget_totals,
    measure_floor,
    measure_script,
    prepare,
    problem_of,
)
from benchmarks.worker import Notes, Order, workers
from benchmarks.workload import Log

EVENTS_PER_LIGHT_KEY = 1.1
ENGINE, SCRIPT, FLOOR = "engine", "script", "floor F2"


def measure_engine(dsn: str, events: int, profile: str = "") -> Measured:
    """Let one worker handle so many events and check what it made."""
    order = Order(dsn, "totals", stop_after=events, profile=profile)
    with workers(order) as (worker,):
        notes = worker.finish()
    measured = Measured(
        notes.events,
        (notes.flushes[-1][0] if notes.flushes else notes.ended) - notes.started,
        notes.cpu_seconds,
        Counter(notes.work),
        Counter(notes.clock),
        _details(notes),
    )
    wrong = run(_problem(dsn))
    trouble = f"the engine reported {'; '.join(notes.trouble[:5])}" if notes.trouble else None
    measured.problem = " and ".join(filter(None, (wrong, trouble))) or None
    measured.details["is right"] = wrong is None
    return measured


def _details(notes: Notes) -> dict[str, Any]:
    groups = max(len(notes.flushes), 1)
    return {
        "groups": len(notes.flushes),
        "events per group": round(notes.events / groups, 1),
        "partitions per group": round(sum(parts for _, _, parts in notes.flushes) / groups, 1),
        "routed batches": len(notes.routed),
        "horizon reads per routed batch": round(notes.horizon_reads / max(len(notes.routed), 1), 2),
        "statements of start and stop": sum(notes.rest.values()),
        "seconds to first flush": round(notes.flushes[0][0] - notes.started, 3) if notes.flushes else 0.0,
        "seconds to last route": round(notes.routed[-1][0] - notes.started, 3) if notes.routed else 0.0,
        "resident MiB": round(notes.resident_bytes / 2**20),
    }


async def _problem(dsn: str) -> str | None:
    async with connected(dsn) as connection:
        return await problem_of(connection, queries_of("engine")["count_left"])


def prepare_light(postgres: Server, log: Log) -> str:
    """Make a template in which every contender has worked off one log and a second of the same size waits."""
    name = "template_light"
    dsn = postgres.make_template(name)
    run(create_schemas(dsn))
    versions: Counter[str] = Counter()
    run(append(dsn, log, versions))
    # The engine comes last: the read model that it leaves is what all start from.
    _require(measure_script(dsn).problem)
    run(forget_totals(dsn))
    _require(measure_floor(dsn, log.events).problem)
    run(forget_totals(dsn))
    # Trouble on the way spoils a figure, not what is left behind.
    engine = measure_engine(dsn, log.events)
    _require(None if engine.details["is right"] else engine.problem)
    run(append(dsn, log, versions))
    return name


def _require(problem: str | None) -> None:
    if problem:
        raise RuntimeError(f"preparing the light log: {problem}")


def contenders(postgres: Server, template: str, log: Log, profile: str = "") -> dict[str, Callable[[], Measured]]:
    """Return the contenders, each on a clone of its own."""

    def script() -> Measured:
        with postgres.clone(template) as dsn:
            return measure_script(dsn)

    def engine() -> Measured:
        with postgres.clone(template) as dsn:
            return measure_engine(dsn, log.events, profile)

    def floor() -> Measured:
        with postgres.clone(template) as dsn:
            return measure_floor(dsn, log.events)

    return {SCRIPT: script, ENGINE: engine, FLOOR: floor}


def add_shape(made: report.Report, title: str, rounds: Rounds) -> None:
    """Report one shape of the log."""
    made.add_rates(title, rounds)
    made.add_statements(f"engine, statements by kind ({title})", rounds[ENGINE])
    made.add_ratio(f"engine / script ({title})", rounds, ENGINE, SCRIPT)
    made.add_ratio(f"engine / floor F2 ({title})", rounds, ENGINE, FLOOR)
    made.add_ratio(f"script / floor F2 ({title})", rounds, SCRIPT, FLOOR)
    made.add_value(f"engine, last round ({title})", rounds[ENGINE][-1].details)


def main() -> int:
    """Measure both shapes, or the one that is asked for."""
    parser = report.parser("engine_catchup", __doc__, rounds=3)
    add_size(parser)
    parser.add_argument("--shape", choices=["heavy", "light", "both"], default="both")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="profile the worker's main thread (slow)")
    options = report.parsed(parser)
    profile = str(options.profile.resolve()) if options.profile else ""
    heavy = Log(options.events, options.keys)
    light = Log(options.events, round(options.events / EVENTS_PER_LIGHT_KEY), even=True)
    with report.Report("engine_catchup", options) as made, server(options.settings) as postgres:
        made.describe(postgres)
        if options.shape != "light":
            template = prepare(postgres, heavy)
            rounds = interleaved(contenders(postgres, template, heavy, profile), options.rounds)
            add_shape(made, f"{heavy.events:,} events over {heavy.keys:,} keys", rounds)
        if options.shape != "heavy":
            template = prepare_light(postgres, light)
            rounds = interleaved(contenders(postgres, template, light, profile), options.rounds)
            add_shape(made, f"{light.events:,} events, 1.1 per partition", rounds)
    return made.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
