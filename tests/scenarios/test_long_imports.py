"""A long import: memory that does not grow with the log, a view of how far it is, and ends that cost nothing.

The log is made as it is read, so that its size costs no disk.
"""

import os
import pty
import random
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from support.commands import command, environment, headrace
from support.databases import Database
from support.processes import peak
from support.waiting import until

LINES = 1_000_000
CHUNK = 1000
MIB = 1 << 20
MOST_RESIDENT = 110 * MIB
MOST_GROWTH = 8 * MIB
"""What may come on top after the first tenth."""

ENDS = {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}
COLOUR = re.compile(rb"\x1b\[[\d;]*m")
BAR = re.compile(rb"[\d,]+ events +[\d,]+/s +0:\d\d:\d\d")


def lines(first: int, end: int) -> bytes:
    """Return some lines of the log, of a thousand streams that take turns."""
    text = '{{"stream":"s-{}","type":"T","data":{{"n":{},"text":"{}"}}}}\n'
    return "".join(text.format(n % 1000, n, "x" * (n % 120)) for n in range(first, end)).encode()


async def reached(database: Database) -> int:
    """Return about how many events are in the log."""
    async with database.connection() as connection:
        return int(await connection.fetchval("select coalesce(max(position), 0) from headrace.events"))


async def assert_exact(database: Database, count: int) -> None:
    """Fail unless each line is there once, in the order of the file, with the versions that its stream has there."""
    async with database.connection() as connection:
        found = await connection.fetchrow(
            """
            select count(*) events, count(distinct n) numbers, min(n) lowest, max(n) highest,
                   bool_and(n > before) ordered,
                   bool_and(version = n / 1000 + 1 and stream = 's-' || n % 1000) versions
              from (select (data->>'n')::int n, stream, version,
                           lag((data->>'n')::int, 1, -1) over (order by position) before from headrace.events) e
            """,
            timeout=300,
        )
    assert found is not None
    assert tuple(found) == (count, count, 0, count - 1, True, True)


@contextmanager
def importing(database: Database, *sources: str, stderr: int | IO[bytes]) -> Iterator["subprocess.Popen[bytes]"]:
    """Yield an import that runs, killed at the end if it still does."""
    process = subprocess.Popen(
        command("import", *sources),
        env=environment(database.dsn) | {"TERM": "xterm-256color", "COLUMNS": "80"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
    )
    try:
        yield process
    finally:
        process.kill()
        if process.stdin is not None:
            process.stdin.close()
        process.wait()


@pytest.mark.timeout(3600)
async def test_memory_stays_what_it_was(database: Database, scale: float, tmp_path: Path) -> None:
    """1,000,000 lines through a pipe: after the first tenth nothing more becomes resident."""
    count = round(LINES * scale) // CHUNK * CHUNK
    with (tmp_path / "said").open("wb") as said, importing(database, "-", stderr=said) as process:
        assert process.stdin is not None

        async def fed(first: int, end: int) -> int:
            for at in range(first, end, CHUNK):
                process.stdin.write(lines(at, min(at + CHUNK, end)))  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            # The last chunk is complete only when something follows it.
            await until(lambda: at_least(database, end - CHUNK), 60 + count / 1000, f"{end} lines are stored")
            return peak(process.pid)

        early = await fed(0, count // 10)
        late = await fed(count // 10, count)
        process.stdin.close()
        assert process.wait(120) == 0

    print(f"{count:,} lines: {early / MIB:.0f} MiB resident after a tenth, {late / MIB:.0f} MiB at the end")  # noqa: T201
    assert late < MOST_RESIDENT
    assert late - early < MOST_GROWTH
    await assert_exact(database, count)


async def at_least(database: Database, position: int) -> bool:
    """Tell whether the log has come that far."""
    return await reached(database) >= position


@pytest.mark.timeout(3600)
async def test_ended_at_any_point_and_started_again(database: Database, scale: float, tmp_path: Path) -> None:
    """Killed, interrupted, terminated at six random points: the last run makes the log whole, and nothing is double."""
    count, chance = round(LINES * scale) // 4, random.Random(17)
    log, said = tmp_path / "log.jsonl", tmp_path / "said"
    with log.open("wb") as file:
        for at in range(0, count, CHUNK):
            file.write(lines(at, min(at + CHUNK, count)))
    for round_, (number, code) in enumerate(list(ENDS.items()) * 2):
        # One chunk of the run before may still arrive.
        goal = min(await reached(database) + chance.randrange(CHUNK + 1, count // 7), count - CHUNK)
        with said.open("wb") as err, importing(database, str(log), stderr=err) as process:
            await until(lambda: process.poll() is not None or at_least(database, goal), 60 + count / 1000)  # noqa: B023
            process.send_signal(number)
            ended = process.wait(60)
        told = said.read_text()
        assert ended == code, (round_, told)
        assert "Traceback" not in told
        assert ("run it again to go on" in told) == (number != signal.SIGKILL)

    there = await reached(database)
    outcome = headrace("import", str(log), "-o", "json", dsn=database.dsn, timeout=120 + count / 1000)

    assert 0 < there < count
    assert outcome.json[0]["known"] > 0
    assert outcome.json[0]["added"] + outcome.json[0]["known"] == count
    await assert_exact(database, count)


async def test_somebody_who_watches_sees_how_long_it_takes(database: Database, tmp_path: Path) -> None:
    """On a terminal: how many events, how fast, and the time that is left; then it is gone and the result stands."""
    log = tmp_path / "log.jsonl"
    log.write_bytes(lines(0, 10_000))
    terminal, stderr = pty.openpty()
    try:
        with importing(database, str(log), stderr=stderr) as process:
            os.close(stderr)
            seen = COLOUR.sub(b"", b"".join(screens(terminal)))
            assert process.wait(60) == 0
    finally:
        os.close(terminal)

    assert BAR.search(seen) is not None, seen[-2000:]


def screens(terminal: int) -> Iterator[bytes]:
    """Yield what is written to a terminal until nobody can any more."""
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:
            return
        if not piece:
            return
        yield piece
