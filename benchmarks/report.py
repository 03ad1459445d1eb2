"""What a benchmark prints and, where asked, writes: figures with everything that they depend on.

Absolute figures of a shared machine say little; the report therefore names the load before and after, and ratios stand
apart from rates. Nothing is written anywhere unless `--json FILE` asks for it.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg
import orjson

from benchmarks.loop import run
from benchmarks.measured import Measured, Rounds, median_of, problems, ratios
from benchmarks.queries import queries_of
from benchmarks.server import Server, connected
from headrace import __version__

MANY = 6
"""Of more ratios than this the quartiles are printed, not each."""

VOID = 1
"""Exit code of a run in which a correctness check has failed."""


def parser(name: str, doc: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has."""
    made = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=(doc or "").split("\n", 1)[0])
    made.add_argument("--rounds", type=int, default=rounds, help="how often each contender is measured (%(default)s)")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the results there as well")
    made.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="NAME=VALUE", help="a setting of PostgreSQL"
    )
    return made


def parsed(made: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    options = made.parse_args(arguments)
    options.settings = dict(text.split("=", 1) for text in options.settings)
    return options


class Report:
    """One run of one benchmark; a context manager that prints the surroundings last."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self._json: Path | None = options.json
        self._problems: list[str] = []
        self.data: dict[str, Any] = {
            "benchmark": name,
            "options": {k: v for k, v in vars(options).items() if k != "json"},
            "surroundings": _surroundings(),
            "results": {},
        }

    @property
    def exit_code(self) -> int:
        """0, or VOID when a correctness check has failed."""
        return VOID if self._problems else 0

    def __enter__(self) -> Self:
        print(f"== {self.data['benchmark']}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        around = self.data["surroundings"]
        around["load_after"] = list(os.getloadavg())
        for problem in self._problems:
            print(f"VOID: {problem}")
        before, after = (" ".join(f"{x:.1f}" for x in around[f"load_{when}"]) for when in ("before", "after"))
        print(
            f"   git {around['git']}, PostgreSQL {around.get('postgresql', '?')}, Python {around['python']}, ", end=""
        )
        print(f"{around['cores']} cores; load {before} -> {after}\n", flush=True)
        self.data["problems"] = self._problems
        if self._json is not None and error is None:
            self._json.write_text(json.dumps(self.data, indent=2) + "\n", "utf-8")

    def describe(self, postgres: Server) -> None:
        """Note the server's version and settings."""
        self.data["surroundings"]["postgresql"] = run(_version(postgres.dsn("postgres")))
        self.data["surroundings"]["settings"] = postgres.settings

    def add_rates(self, title: str, rounds: Rounds) -> None:
        """Print one line per contender: medians over the rounds, and the best rate."""
        self._note(problems(rounds))
        head = ["", "events/s", "best", "client us/event", "statements/1,000", "clock-driven/s"]
        table = [[name, *_line(measured)] for name, measured in rounds.items()]
        print_table(title, head, table)
        self.data["results"][title] = {name: [_plain(m) for m in each] for name, each in rounds.items()}

    def add_statements(self, title: str, measured: Sequence[Measured]) -> None:
        """Print how many statements of each kind there were: per 1,000 events, or per second if clock-driven."""
        counted = [m for m in measured if m.problem is None]
        work = sorted({kind for m in counted for kind in m.work})
        clock = sorted({kind for m in counted for kind in m.clock})
        rows = [[kind, _median_text([m.per_thousand(kind) for m in counted]), ""] for kind in work]
        rows += [[kind, "", _median_text([m.clock_per_second(kind) for m in counted])] for kind in clock]
        print_table(title, ["", "per 1,000 events", "per second"], rows)

    def add_ratio(self, title: str, rounds: Rounds, name: str, other: str, target: str = "") -> None:
        """Print the ratio of two rates: the median of the rounds, and each."""
        self.add_ratios(title, ratios(rounds, name, other), target)

    def add_ratios(self, title: str, found: Sequence[float], target: str = "") -> None:
        """Print ratios that were taken inside rounds; the target is for the reader, nothing is asserted."""
        middle = statistics.median(found) if found else float("nan")
        each = " ".join(f"{x:.2f}" for x in found)
        if len(found) > MANY:
            low, _, high = statistics.quantiles(found, n=4)
            each = f"{len(found)} pairs, middle half {low:.2f} to {high:.2f}"
        print(f"   {title}: {middle:.2f}  ({each}){f', target {target}' if target else ''}")
        self.data["results"][title] = {"median": middle, "rounds": list(found)}

    def add_value(self, title: str, value: Any) -> None:
        """Print and note a single figure or text."""
        print(f"   {title}: {value:.2f}" if isinstance(value, float) else f"   {title}: {value}")
        self.data["results"][title] = value

    def void(self, problem: str | None) -> None:
        """Note a failed check; None is no problem."""
        self._note([problem] if problem else [])

    def _note(self, found: Sequence[str]) -> None:
        self._problems.extend(problem for problem in found if problem not in self._problems)


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the first column is text, the others are numbers."""
    print(f"   {title}")
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print("   " + "  ".join(cells).rstrip())


def _median_text(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}"


def _line(measured: Sequence[Measured]) -> list[str]:
    counted = [m.rate for m in measured if m.problem is None]
    if not counted:
        return ["void"] * 5
    return [
        f"{statistics.median(counted):,.0f}",
        f"{max(counted):,.0f}",
        f"{median_of(measured, lambda m: m.cpu_microseconds):.1f}",
        f"{median_of(measured, Measured.per_thousand):.2f}",
        f"{median_of(measured, Measured.clock_per_second):.1f}",
    ]


def _plain(measured: Measured) -> dict[str, Any]:
    # Not by asdict: Python 3.11 cannot copy a Counter with it.
    plain = {f.name: getattr(measured, f.name) for f in fields(measured)}
    return plain | {
        "rate": measured.rate,
        "cpu_microseconds": measured.cpu_microseconds,
        "statements_per_thousand": measured.per_thousand(),
        "clock_statements_per_second": measured.clock_per_second(),
    }


async def _version(dsn: str) -> str:
    async with connected(dsn) as connection:
        return str(await connection.fetchval(queries_of("server")["version"]))


def _surroundings() -> dict[str, Any]:
    return {
        "git": _git(),
        "headrace": __version__,
        "python": platform.python_version(),
        "asyncpg": asyncpg.__version__,
        "orjson": orjson.__version__,
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "load_before": list(os.getloadavg()),
    }


def _git() -> str:
    """Return the commit, with a plus when the tree differs from it; '?' outside of a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--abbrev=9"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "?"
    return done.stdout.strip() if done.returncode == 0 else "?"
