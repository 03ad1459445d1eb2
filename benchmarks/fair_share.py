"""How far eight processes of one lane share few partitions with slow handlers, beside one process alone.

All processes are alive, and have counted each other, before the first event arrives. The time runs from the first claim
to the last flush of any of them.
"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass

from benchmarks import report
from benchmarks.loop import run
from benchmarks.queries import queries_of
from benchmarks.server import Server, append, connected, server
from benchmarks.straight_line import problem_of
from benchmarks.worker import Notes, Order, WorkerProcess, workers
from benchmarks.workload import Log

TARGET = 6
ALIVE_SECONDS = 60.0
PATIENCE = 3.0
"""How much longer than the handlers' own time a run may take."""


@dataclass(slots=True)
class Shared:
    """One run: how long it took in seconds, and what each process did."""

    seconds: float
    notes: list[Notes]
    problem: str | None

    @property
    def partitions(self) -> list[int]:
        """Partitions that each process flushed; one that comes in two loads counts twice."""
        return [sum(parts for _, _, parts in each.flushes) for each in self.notes]

    @property
    def largest_claim(self) -> int:
        """Partitions of the largest claim."""
        return max((parts for each in self.notes for _, parts, _ in each.claims), default=0)

    @property
    def largest_first_claim(self) -> int:
        """Partitions of the largest first claim of a process."""
        return max((each.claims[0][1] for each in self.notes if each.claims), default=0)


def measure(postgres: Server, template: str, log: Log, processes: int, awaited: float) -> Shared:
    """Let so many processes share a log."""
    variables = {"BENCHMARK_AWAITED_SECONDS": str(awaited)}
    with postgres.clone(template) as dsn:
        with workers(*[Order(dsn, "slow")] * processes, variables=variables) as running:
            for worker in running:
                worker.wait_ready()
            run(_wait_alive(dsn, processes))
            run(append(dsn, log, Counter()))
            run(_wait_handled(dsn, log.events * awaited * PATIENCE + ALIVE_SECONDS))
            notes = _stopped(running)
        problem = run(_problem(dsn, notes))
    first = min(each.claims[0][0] for each in notes if each.claims)
    last = max(each.flushes[-1][0] for each in notes if each.flushes)
    return Shared(last - first, notes, problem)


def _stopped(running: list[WorkerProcess]) -> list[Notes]:
    return [worker.stop() for worker in running]


async def _wait_alive(dsn: str, processes: int) -> None:
    """Wait until every process has beaten after all of them were there."""
    await _wait(dsn, "count_alive", processes, ALIVE_SECONDS)


async def _wait_handled(dsn: str, seconds: float) -> None:
    """Wait until nothing is left."""
    await _wait(dsn, "count_unhandled", 0, seconds)


async def _wait(dsn: str, query: str, wanted: int, seconds: float) -> None:
    given_up_at = time.monotonic() + seconds
    async with connected(dsn) as connection:
        while (found := await connection.fetchval(queries_of("engine")[query])) != wanted:
            if time.monotonic() > given_up_at:
                raise RuntimeError(f"{query} is still {found}, not {wanted}, after {seconds:g} s")
            await asyncio.sleep(0.25)


async def _problem(dsn: str, notes: list[Notes]) -> str | None:
    async with connected(dsn) as connection:
        found = await problem_of(connection, queries_of("engine")["count_left"])
    trouble = "; ".join(line for each in notes for line in each.trouble[:2])
    return found or (trouble and f"the engine reported {trouble}") or None


def main() -> int:
    """Measure one process, then all of them."""
    parser = report.parser("fair_share", __doc__, rounds=1)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--per-partition", type=int, default=5, help="events of each partition (%(default)s)")
    parser.add_argument("--awaited", type=float, default=0.2, help="seconds that a handler awaits (%(default)s)")
    parser.add_argument("--processes", type=int, default=8)
    options = report.parsed(parser)
    log = Log(options.partitions * options.per_partition, options.partitions, even=True)
    with report.Report("fair_share", options) as made, server(options.settings) as postgres:
        made.describe(postgres)
        template = "template_empty"
        postgres.make_template(template)
        pairs = [
            tuple(measure(postgres, template, log, count, options.awaited) for count in (1, options.processes))
            for _ in range(options.rounds)
        ]
        for alone, together in pairs:
            made.void(alone.problem)
            made.void(together.problem)
        speed_ups = [alone.seconds / together.seconds for alone, together in pairs]
        made.add_ratios(f"{options.processes} processes, speed-up over one", speed_ups, target=f"{TARGET}")
        alone, together = pairs[-1]
        made.add_value("one process, seconds", alone.seconds)
        made.add_value(f"{options.processes} processes, seconds", together.seconds)
        made.add_value("partitions flushed by each process", together.partitions)
        made.add_value("largest first claim", together.largest_first_claim)
        made.add_value("largest claim", together.largest_claim)
    return made.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
