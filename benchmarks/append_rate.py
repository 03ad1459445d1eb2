"""What appends pay for being read: sixteen appenders alone, beside a worker that only reads, beside one that projects.

Each appender has a connection and commits event by event, as applications do, durably. The worker that only reads
wants events of another type: it looks at the line and moves its cursor, and that is all. The one that projects competes
for the same processors and the same disk; its ratio has no target.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks import report
from benchmarks.loop import run
from benchmarks.measured import Measured, Rounds, interleaved
from benchmarks.queries import queries_of
from benchmarks.server import Server, connected, server
from benchmarks.straight_line import cpu_seconds, problem_of
from benchmarks.worker import Notes, Order, WorkerProcess, workers
from benchmarks.workload import EVENT_TYPE, data_of

TARGET = 0.95
WARM_SECONDS = 0.5
CATCH_UP_SECONDS = 120.0
ALONE, READING, PROJECTING = "alone", "beside a worker that reads", "beside a worker that projects"
APPS = {ALONE: None, READING: "other", PROJECTING: "totals"}


async def _append_for(dsn: str, appenders: int, seconds: float) -> tuple[int, float]:
    """Append from so many connections for a while; return how many events the measured time saw, and that time."""
    counts = [0] * appenders
    async with asyncio.TaskGroup() as tasks:
        stop = asyncio.Event()
        for number in range(appenders):
            tasks.create_task(_appender(dsn, number, counts, stop), name=f"appender {number}")
        while not all(counts):  # noqa: ASYNC110 - looking now and then disturbs the appenders less than being told
            await asyncio.sleep(0.01)
        await asyncio.sleep(WARM_SECONDS)
        before, started = sum(counts), time.perf_counter()
        await asyncio.sleep(seconds)
        found, taken = sum(counts) - before, time.perf_counter() - started
        stop.set()
    return found, taken


async def _appender(dsn: str, number: int, counts: list[int], stop: asyncio.Event) -> None:
    async with connected(dsn) as connection:
        insert = await connection.prepare(queries_of("engine")["append_one"])
        while not stop.is_set():
            counts[number] += 1
            # A stream per ten events, none shared between appenders: no conflicts, and as many keys as orders have.
            stream, version = divmod(counts[number] - 1, 10)
            await insert.fetchval(f"order-{number}-{stream}", version + 1, EVENT_TYPE, data_of(stream % 9999))


@contextmanager
def _worker_beside(dsn: str, app: str | None) -> Iterator[WorkerProcess | None]:
    if app is None:
        yield None
        return
    with workers(Order(dsn, app)) as (worker,):
        worker.wait_ready()
        yield worker


def measure(postgres: Server, template: str, name: str, appenders: int, seconds: float) -> Measured:
    """Append for a while, with or without a worker beside."""
    with postgres.clone(template) as dsn:
        with _worker_beside(dsn, APPS[name]) as worker:
            cpu = cpu_seconds()
            found, taken = run(_append_for(dsn, appenders, seconds))
            measured = Measured(found, taken, cpu_seconds() - cpu)
            if worker is not None:
                measured.problem = run(_wait_caught_up(dsn, projects=APPS[name] == "totals"))
                notes = worker.stop()
                measured.details = _details(notes)
                measured.problem = measured.problem or "; ".join(notes.trouble[:3]) or None
        if APPS[name] == "totals" and measured.problem is None:
            measured.problem = run(_problem(dsn))
    return measured


def _details(notes: Notes) -> dict[str, float]:
    """Return what the worker did per second, and the share of one processor that its client side took."""
    seconds = (notes.flushes[-1][0] if notes.flushes else notes.ended) - notes.started
    per_second = {kind: round(count / seconds, 1) for kind, count in sorted((notes.work | notes.clock).items())}
    return per_second | {"processor": round(notes.cpu_seconds / seconds, 3)}


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


def alternating(contenders: dict[str, Any], rounds: int) -> Rounds:
    """Measure in turn, forwards and backwards, so that a drift of the machine favours nobody."""
    found: Rounds = {name: [] for name in contenders}
    for number in range(rounds):
        order = contenders if number % 2 == 0 else dict(reversed(contenders.items()))
        for name, measured in interleaved(order, 1).items():
            found[name].extend(measured)
    return found


def main() -> int:
    """Measure the three, round by round."""
    parser = report.parser("append_rate", __doc__, rounds=5)
    parser.add_argument("--appenders", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (%(default)s)")
    options = report.parsed(parser)
    with report.Report("append_rate", options) as made, server(options.settings) as postgres:
        made.describe(postgres)
        template = "template_empty"
        postgres.make_template(template)

        def contender(name: str) -> Any:
            return lambda: measure(postgres, template, name, options.appenders, options.seconds)

        rounds = alternating({name: contender(name) for name in APPS}, options.rounds)
        made.add_rates(f"{options.appenders} appenders, one event per commit", rounds)
        made.add_ratio(f"{READING} / {ALONE}", rounds, READING, ALONE, target=f"{TARGET}")
        made.add_ratio(f"{PROJECTING} / {ALONE}", rounds, PROJECTING, ALONE)
        for name in (READING, PROJECTING):
            made.add_value(f"{name}, its statements per second", rounds[name][-1].details)
    return made.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
