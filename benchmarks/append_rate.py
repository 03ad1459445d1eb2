"""What appends pay for being read: sixteen appenders alone, beside a worker that only reads, beside one that projects.

Each appender has a connection and commits event by event, as applications do, durably. They never pause; the worker
beside them is frozen and thawed in turn, so that its cost is the difference between two neighbouring seconds and not
between two minutes of a shared machine. The one that only reads wants events of another type: it looks at the line and
moves its cursor, and that is all. The one that projects finds what came while it was frozen and so is busy all the
time; it competes for the same processors and the same disk, and its ratio has no target.
"""

import asyncio
import time
from typing import Any

from benchmarks import report
from benchmarks.loop import run
from benchmarks.measured import Measured, Rounds
from benchmarks.queries import queries_of
from benchmarks.server import Server, connected, server
from benchmarks.straight_line import problem_of
from benchmarks.worker import Notes, Order, WorkerProcess, workers
from benchmarks.workload import EVENT_TYPE, data_of

TARGET = 0.95
SETTLE_SECONDS = 0.25
"""After freezing or thawing the worker, before the next slice counts."""

CATCH_UP_SECONDS = 120.0
ALONE = "alone (worker frozen)"
APPS = {"beside a worker that reads": "other", "beside a worker that projects": "totals"}
READING, PROJECTING = APPS


async def append_beside(
    dsn: str, worker: WorkerProcess, appenders: int, pairs: int, seconds: float
) -> tuple[list[Measured], list[Measured]]:
    """Append without pause; return what slices of so many seconds saw, pair by pair: worker frozen, worker running."""
    counts = [0] * appenders
    frozen: list[Measured] = []
    running: list[Measured] = []
    async with asyncio.TaskGroup() as tasks:
        stop = asyncio.Event()
        for number in range(appenders):
            tasks.create_task(_appender(dsn, number, counts, stop), name=f"appender {number}")
        while not all(counts):  # noqa: ASYNC110 - looking now and then disturbs the appenders less than being told
            await asyncio.sleep(0.01)
        for pair in range(pairs):
            # Forwards and backwards in turn, so that a drift of the machine favours nobody.
            for freeze in (True, False) if pair % 2 == 0 else (False, True):
                (worker.freeze if freeze else worker.thaw)()
                await asyncio.sleep(SETTLE_SECONDS)
                before, started = sum(counts), time.perf_counter()
                await asyncio.sleep(seconds)
                slice_ = Measured(sum(counts) - before, time.perf_counter() - started, 0.0)
                (frozen if freeze else running).append(slice_)
        worker.thaw()
        stop.set()
    return frozen, running


async def _appender(dsn: str, number: int, counts: list[int], stop: asyncio.Event) -> None:
    async with connected(dsn) as connection:
        insert = await connection.prepare(queries_of("engine")["append_one"])
        while not stop.is_set():
            counts[number] += 1
            # A stream per ten events, none shared between appenders: no conflicts, and as many keys as orders have.
            stream, version = divmod(counts[number] - 1, 10)
            await insert.fetchval(f"order-{number}-{stream}", version + 1, EVENT_TYPE, data_of(stream % 9999))


def measure(postgres: Server, template: str, name: str, options: Any) -> tuple[Rounds, dict[str, float]]:
    """Append beside one kind of worker and check what it made; return slices, and what the worker did per second."""
    projects = name == PROJECTING
    with postgres.clone(template) as dsn:
        with workers(Order(dsn, APPS[name])) as (worker,):
            worker.wait_ready()
            frozen, running = run(append_beside(dsn, worker, options.appenders, options.pairs, options.slice))
            problem = run(_wait_caught_up(dsn, projects=projects))
            notes = worker.stop()
        if projects and problem is None:
            problem = run(_problem(dsn))
    problem = problem or "; ".join(notes.trouble[:3]) or None
    for each in (*frozen, *running):
        each.problem = problem
    return {ALONE: frozen, name: running}, _per_second(notes)


def _per_second(notes: Notes) -> dict[str, float]:
    """Return what the worker did per second, frozen or not, and the share of one processor that it took."""
    seconds = (notes.flushes[-1][0] if notes.flushes else notes.ended) - notes.started
    counts = {kind: round(count / seconds, 1) for kind, count in sorted((notes.work | notes.clock).items())}
    return counts | {"processor": round(notes.cpu_seconds / seconds, 3)}


async def _wait_caught_up(dsn: str, *, projects: bool) -> str | None:
    """Wait until the worker has read everything (and projected it); what is wrong when it does not."""
    query = queries_of("engine")["count_unhandled"] if projects else queries_of("engine")["count_unread"]
    given_up_at = time.monotonic() + CATCH_UP_SECONDS
    async with connected(dsn) as connection:
        while left := await connection.fetchval(query):
            if time.monotonic() > given_up_at:
                return f"{left} events are not read after {CATCH_UP_SECONDS:g} s"
            await asyncio.sleep(0.1)
    return None


async def _problem(dsn: str) -> str | None:
    async with connected(dsn) as connection:
        return await problem_of(connection, queries_of("engine")["count_left"])


def main() -> int:
    """Measure beside the one worker, then beside the other."""
    parser = report.parser("append_rate", __doc__, rounds=1)
    parser.add_argument("--appenders", type=int, default=16)
    parser.add_argument("--pairs", type=int, default=15, help="slices frozen and running, each (%(default)s)")
    parser.add_argument("--slice", type=float, default=1.0, help="seconds of a slice (%(default)s)")
    options = report.parsed(parser)
    with report.Report("append_rate", options) as made, server(options.settings) as postgres:
        made.describe(postgres)
        template = "template_empty"
        postgres.make_template(template)
        for name, target in ((READING, f"{TARGET}"), (PROJECTING, "")):
            rounds: Rounds = {ALONE: [], name: []}
            per_second: dict[str, float] = {}
            for _ in range(options.rounds):
                found, per_second = measure(postgres, template, name, options)
                for kind, slices in found.items():
                    rounds[kind].extend(slices)
            made.add_rates(f"{options.appenders} appenders, one event per commit, {name}", rounds)
            made.add_ratio(f"{name} / {ALONE}", rounds, name, ALONE, target=target)
            made.add_value(f"{name}, what it did per second", per_second)
    return made.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
