"""The straight-line script and floor F2: what the engine's figures are divided by.

The script does the engine's job with the engine's guards and nothing else: one connection, no tasks, no ports, no
objects per event. Run alone it prints its own figures; `benchmarks.engine_catchup` runs it beside the engine.
"""

import argparse
import resource
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson

from benchmarks import report
from benchmarks.loop import run
from benchmarks.measured import Measured, interleaved
from benchmarks.queries import queries_of
from benchmarks.server import Server, append, connected, server
from benchmarks.workload import Log

ROUTE_BATCH = 5000
GROUP_PARTITIONS = 1000
GROUP_EVENTS = 2500
PARTITION_EVENTS = 1000
RUN = 1
FLOOR = ("route", "project", "move", "clear")

Folded = dict[str, list[int]]


class Script:
    """Route, then claim, load, fold and flush until nothing is due; counts its statements by kind."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._sql = queries_of("straight_line")
        self._add_totals = queries_of("projection")["add_totals"]
        self.statements: Counter[str] = Counter()
        self.events = 0

    async def catch_up(self, horizon: int) -> None:
        """Route all of it, then work it off: the order in which groups are fullest."""
        while await self._route(horizon):
            pass
        while await self._work():
            pass

    async def _route(self, horizon: int) -> bool:
        async with self._connection.transaction():
            position = await self._value("route_lock", RUN)
            if position >= horizon:
                return False
            events, stored = (await self._rows("route", RUN, position, horizon, ROUTE_BATCH))[0]
            if events != stored:
                raise AssertionError(f"{stored} of {events} events have been routed")
        return bool(events)

    async def _work(self) -> bool:
        lease = secrets.randbits(63)
        parts = [row[0] for row in await self._rows("claim", RUN, lease, GROUP_PARTITIONS, GROUP_EVENTS)]
        if not parts:
            return False
        rows = await self._rows("load", parts, PARTITION_EVENTS)
        async with self._connection.transaction():
            if await self._value("fence", lease) is None:
                raise AssertionError("the lease is lost")
            await self._add(fold(rows))
            await self._rows("flush", lease, *progress(rows))
        self.events += len(rows)
        return True

    async def _add(self, totals: Folded) -> None:
        self.statements["handler"] += 1
        events, amounts, last = zip(*totals.values(), strict=True)
        await self._connection.execute(self._add_totals, list(totals), events, amounts, last)

    async def _rows(self, kind: str, *arguments: Any) -> Any:
        self.statements[kind] += 1
        return await self._connection.fetch(self._sql[kind], *arguments)

    async def _value(self, kind: str, *arguments: Any) -> Any:
        self.statements[kind] += 1
        return await self._connection.fetchval(self._sql[kind], *arguments)


def fold(rows: Sequence[Any]) -> Folded:
    """Return per stream the number of events, the sum of amounts and the last position."""
    totals: Folded = {}
    for _, position, stream, data in rows:
        amount = orjson.loads(data)["amount"]
        total = totals.get(stream)
        if total is None:
            totals[stream] = [1, amount, position]
        else:
            total[0] += 1
            total[1] += amount
            total[2] = position
    return totals


def progress(rows: Sequence[Any]) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Return partitions, how many events of each, the last position of each, and all (partition, position) pairs."""
    parts: list[int] = []
    counts: list[int] = []
    last: list[int] = []
    for part, position, _, _ in rows:
        if not parts or parts[-1] != part:
            parts.append(part)
            counts.append(1)
            last.append(position)
        else:
            counts[-1] += 1
            last[-1] = position
    return parts, counts, last, [row[0] for row in rows], [row[1] for row in rows]


def measure_script(dsn: str) -> Measured:
    """Run the script on a prepared database and check what it made."""
    return run(_measure_script(dsn))


async def _measure_script(dsn: str) -> Measured:
    async with connected(dsn) as connection:
        horizon = await connection.fetchval(queries_of("projection")["last_position"])
        script = Script(connection)
        cpu, started = cpu_seconds(), time.perf_counter()
        await script.catch_up(horizon)
        measured = Measured(script.events, time.perf_counter() - started, cpu_seconds() - cpu, script.statements)
        measured.problem = await problem_of(connection, queries_of("straight_line")["count_left"])
    return measured


def measure_floor(dsn: str, events: int) -> Measured:
    """Run floor F2 on a prepared database and check what it made."""
    return run(_measure_floor(dsn, events))


async def _measure_floor(dsn: str, events: int) -> Measured:
    sql = queries_of("floor")
    async with connected(dsn) as connection:
        cpu, started = cpu_seconds(), time.perf_counter()
        async with connection.transaction():
            for name in FLOOR:
                await connection.execute(sql[name])
        measured = Measured(
            events, time.perf_counter() - started, cpu_seconds() - cpu, Counter(dict.fromkeys(FLOOR, 1))
        )
        measured.problem = await problem_of(connection, sql["count_left"])
    return measured


async def problem_of(connection: Any, count_left: str) -> str | None:
    """Return what is wrong with the read model or left over; None when the figure counts."""
    wrong = await connection.fetchval(queries_of("projection")["count_wrong_totals"])
    left = await connection.fetchval(count_left)
    return f"{wrong} keys are wrong, {left} rows are left over" if wrong or left else None


async def create_schemas(dsn: str) -> None:
    """Create the tables of script and floor."""
    async with connected(dsn) as connection:
        await connection.execute(queries_of("straight_line")["create_schema"])
        await connection.execute(queries_of("floor")["create_schema"])


async def forget_totals(dsn: str) -> None:
    """Empty the read model, so that another contender can fill it."""
    async with connected(dsn) as connection:
        await connection.execute(queries_of("projection")["forget_totals"])


def cpu_seconds() -> float:
    """Return the processor time of this process so far, in seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def add_size(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how large the log is."""
    parser.add_argument("--events", type=int, default=100_000, help="size of the log (%(default)s)")
    parser.add_argument("--keys", type=int, default=4_000, help="keys in it (%(default)s)")


def prepare(postgres: Server, log: Log) -> str:
    """Make the template for one log; return its name."""
    name = "template_heavy"
    dsn = postgres.make_template(name)
    run(create_schemas(dsn))
    run(append(dsn, log, Counter()))
    return name


def main() -> int:
    """Run script and floor side by side."""
    made_parser = report.parser("straight_line", __doc__, rounds=3)
    add_size(made_parser)
    options = report.parsed(made_parser)
    log = Log(options.events, options.keys)
    with report.Report("straight_line", options) as made, server(options.settings) as postgres:
        template = prepare(postgres, log)
        made.describe(postgres)

        def script() -> Measured:
            with postgres.clone(template) as dsn:
                return measure_script(dsn)

        def floor() -> Measured:
            with postgres.clone(template) as dsn:
                return measure_floor(dsn, log.events)

        rounds = interleaved({"script": script, "floor F2": floor}, options.rounds)
        made.add_rates(f"{log.events:,} events over {log.keys:,} keys", rounds)
        made.add_ratio("script / floor F2", rounds, "script", "floor F2")
    return made.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
