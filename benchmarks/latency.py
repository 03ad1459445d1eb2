"""From the commit of an event to its read model, at a fixed rate of appends.

An open loop: events are due on a schedule, whatever has become of those before, so a stall shows in every event that
fell into it. An event counts as visible when the worker hears that the flush has committed. Two figures: from the
commit's answer, and from the moment at which the event was due.
"""

import asyncio
import statistics
import time

from benchmarks import report
from benchmarks.loop import run
from benchmarks.queries import queries_of
from benchmarks.server import Server, connected, server
from benchmarks.straight_line import problem_of
from benchmarks.worker import Notes, Order, workers
from benchmarks.workload import EVENT_TYPE, data_of

APPENDERS = 8
KEYS = 500
PERCENTS = (50, 95, 99)
CATCH_UP_SECONDS = 60.0

Append = tuple[int, float, float]
"""Position, when it was due, when its commit was answered; monotonic seconds."""


async def append_on_schedule(dsn: str, rate: float, seconds: float) -> list[Append]:
    """Append ``rate`` events per second for a while, each at its time or as soon after as a connection is free."""
    due: asyncio.Queue[tuple[int, float]] = asyncio.Queue()
    done: list[Append] = []
    async with asyncio.TaskGroup() as tasks:
        for number in range(APPENDERS):
            tasks.create_task(_appender(dsn, due, done), name=f"appender {number}")
        started = time.monotonic() + 0.5
        for number in range(int(rate * seconds)):
            at = started + number / rate
            await asyncio.sleep(max(at - time.monotonic(), 0.0))
            due.put_nowait((number, at))
        for _ in range(APPENDERS):
            due.put_nowait((-1, 0.0))
    return done


async def _appender(dsn: str, due: "asyncio.Queue[tuple[int, float]]", done: list[Append]) -> None:
    async with connected(dsn) as connection:
        insert = await connection.prepare(queries_of("engine")["append_one"])
        while True:
            number, at = await due.get()
            if number < 0:
                return
            # Neighbours are of different streams, so no two connections meet at one version.
            version, stream = divmod(number, KEYS)
            position = await insert.fetchval(f"order-{stream}", version + 1, EVENT_TYPE, data_of(stream + 1))
            done.append((position, at, time.monotonic()))


def measure(postgres: Server, template: str, rate: float, seconds: float) -> tuple[list[Append], Notes, str | None]:
    """Append beside one worker; return what was appended, the worker's notes, and what is wrong with them."""
    with postgres.clone(template) as dsn:
        with workers(Order(dsn, "noted")) as (worker,):
            worker.wait_ready()
            appended = run(append_on_schedule(dsn, rate, seconds))
            run(_wait_handled(dsn))
            notes = worker.stop()
        problem = run(_problem(dsn))
    missing = {position for position, _, _ in appended} - set(notes.visible_at)
    if missing:
        problem = f"{problem or ''} {len(missing)} events were never seen to be flushed".strip()
    return appended, notes, problem or "; ".join(notes.trouble[:3]) or None


async def _wait_handled(dsn: str) -> None:
    given_up_at = time.monotonic() + CATCH_UP_SECONDS
    async with connected(dsn) as connection:
        while left := await connection.fetchval(queries_of("engine")["count_unhandled"]):
            if time.monotonic() > given_up_at:
                raise RuntimeError(f"{left} events are not handled after {CATCH_UP_SECONDS:g} s")
            await asyncio.sleep(0.1)


async def _problem(dsn: str) -> str | None:
    async with connected(dsn) as connection:
        return await problem_of(connection, queries_of("engine")["count_left"])


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Return percentiles and the maximum in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    found = {f"p{percent}": cuts[percent - 1] * 1000 for percent in PERCENTS}
    return {name: round(value, 1) for name, value in (found | {"max": max(seconds) * 1000}).items()}


def main() -> int:
    """Measure one rate."""
    parser = report.parser("latency", __doc__, rounds=1)
    parser.add_argument("--rate", type=float, default=200.0, help="events per second (%(default)s)")
    parser.add_argument("--seconds", type=float, default=15.0, help="of appending (%(default)s)")
    options = report.parsed(parser)
    with report.Report("latency", options) as made, server(options.settings) as postgres:
        made.describe(postgres)
        template = "template_empty"
        postgres.make_template(template)
        since_commit: list[float] = []
        since_due: list[float] = []
        for _ in range(options.rounds):
            appended, notes, problem = measure(postgres, template, options.rate, options.seconds)
            made.void(problem)
            # An answer that the appender read late can come after the flush: that event waited for nothing.
            seen = notes.visible_at
            since_commit += [max(seen[p] - committed, 0.0) for p, _, committed in appended if p in seen]
            since_due += [seen[p] - due for p, due, _ in appended if p in seen]
        made.add_value(f"{options.rate:g} events/s, events measured", len(since_commit))
        made.add_value("commit to read model, ms", percentiles(since_commit))
        made.add_value("due to read model, ms (with the append itself)", percentiles(since_due))
    return made.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
