"""`headrace import` on a real database: all or nothing by chunk, safe to repeat, every bad line named."""

import gzip
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.runtime import importing
from headrace.runtime.importing import import_file
from headrace.store.events import PostgresEvents
from headrace.store.pool import Database as Pool
from support.commands import headrace, started
from support.databases import Database
from support.waiting import until


def line(number: int, **more: Any) -> bytes:
    """Return one line of a log; six lines make a stream."""
    return json.dumps({"stream": f"s-{number // 6}", "type": "T", "data": {"n": number}} | more).encode() + b"\n"


def log(count: int) -> bytes:
    """Return a log of so many lines."""
    return b"".join(line(number) for number in range(count))


async def stored(database: Database) -> list[tuple[str, int, int]]:
    """Return stream, version and number of each event, by position."""
    async with database.connection() as connection:
        rows = await connection.fetch("select stream, version, data->>'n' n from headrace.events order by position")
    return [(row["stream"], row["version"], int(row["n"])) for row in rows]


async def test_order_versions_and_repeats(database: Database, tmp_path: Path) -> None:
    """Lines become events in their order with versions by stream; plain, packed and piped again add nothing."""
    text = log(2500)
    plain, packed = tmp_path / "log.jsonl", tmp_path / "log.jsonl.gz"
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))

    first = headrace("import", str(plain), dsn=database.dsn)
    again = headrace("import", str(packed), "-", "--output", "json", dsn=database.dsn, stdin=text)

    assert (first.code, first.err) == (0, "")
    assert first.out.startswith(f"{plain}: 2,500 events added")
    assert [(f["added"], f["known"], f["events"]) for f in again.json] == [(0, 2500, 2500)] * 2
    assert await stored(database) == [(f"s-{n // 6}", n % 6 + 1, n) for n in range(2500)]


async def test_a_grown_log_adds_what_is_new(database: Database) -> None:
    """Importing the log again after it has grown appends only its new lines, behind the old ones."""
    headrace("import", "-", dsn=database.dsn, stdin=log(1500).rstrip(b"\n"))
    grown = headrace("import", "-", dsn=database.dsn, stdin=log(3000))

    assert "1,500 events added, 1,500 were there already" in grown.out
    assert [number for _, _, number in await stored(database)] == list(range(3000))


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (b'{"stream":"s","type":"T"}\n', "the field 'data' is missing"),
        (b'{"stream":"s","type":"T","data":{"a":"\\u0000"}}\n', "data holds the character NUL"),
        (b'{"stream":"s","type":"T","data":{"\\ud800":1}}\n', "data holds half of a surrogate pair"),
        (b'{"stream":"s","type":"T","data":{},"metadata":{"a":"\\u0000"}}\n', "metadata holds the character NUL"),
        (b'{"stream":"s\\u0000","type":"T","data":{}}\n', "the stream holds the character NUL"),
        (b'{"stream":"s","type":"T","data":{},"tags":["\\udfff"]}\n', "a tag holds half of a surrogate pair"),
        (b'{"stream":"s","type":"T","data":1e400000}\n', "data cannot be stored"),
        (b'{"stream":"s","type":"T","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "data cannot be stored"),
        (b'{"stream":"s","type":"T","data":{}}x\n', "something follows"),
        (b'{"stream":"\xff","type":"T","data":{}}\n', "it is not UTF-8"),
    ],
)
async def test_a_bad_line_costs_its_chunk_only(database: Database, bad: bytes, problem: str) -> None:
    """Line 1,501 is bad: 1,000 events stay, nothing of the second chunk is stored, the message names the line."""
    outcome = headrace("import", "-", dsn=database.dsn, stdin=log(1500) + bad + log(10))

    assert outcome.code == 2
    assert f"standard input: line 1501: {problem}" in outcome.err
    assert "this import has appended 1,000 events; correct the line and import again" in outcome.err
    assert "Traceback" not in outcome.err
    assert len(await stored(database)) == 1000


async def test_a_corrected_line_goes_on_where_it_ended(database: Database) -> None:
    """After the bad line is corrected the same command adds what was missing, once."""
    headrace("import", "-", dsn=database.dsn, stdin=log(1500) + b"nonsense\n" + log(1600)[len(log(1500)) :])
    outcome = headrace("import", "-", dsn=database.dsn, stdin=log(1600))

    assert "600 events added, 1,000 were there already" in outcome.out
    assert [number for _, _, number in await stored(database)] == list(range(1600))


async def test_what_json_can_hold_arrives_unchanged(database: Database) -> None:
    """Nesting 500 deep, a text of 1 MB, and numbers of 60 digits pass and keep every digit."""
    deep = "[" * 500 + "]" * 500
    number = "1234567890123456789012345678901234567890.1234567890123456789010"
    data = '{"deep":' + deep + ',"long":"' + "x" * 1_000_000 + '","number":' + number + "}"
    outcome = headrace(
        "import", "-", dsn=database.dsn, stdin=b'{"stream":"s","type":"T","data":' + data.encode() + b"}"
    )

    assert outcome.code == 0
    async with database.connection() as connection:
        row = await connection.fetchrow(
            "select data->>'deep' deep, length(data->>'long') long, data->>'number' number from headrace.events"
        )
    assert row is not None
    assert (row["deep"], row["long"], row["number"]) == (deep, 1_000_000, number)


async def test_given_ids_times_and_tags(database: Database) -> None:
    """What the line says of itself is stored; an id that comes twice in one chunk is added once."""
    given = {"recorded_at": "2006-06-17T00:00:00.000Z", "tags": ["a:1"], "metadata": {"m": 1}}
    twice = line(1, event_id="6f2d0c9e-5d0b-4a58-9a61-6b1f0a4c7e25", **given) * 2
    outcome = headrace("import", "-", "-o", "json", dsn=database.dsn, stdin=twice)

    assert [(f["added"], f["known"]) for f in outcome.json] == [(1, 1)]
    async with database.connection() as connection:
        row = await connection.fetchrow(
            "select event_id::text id, recorded_at::date::text as recorded, tags, metadata->>'m' m,"
            " appended_at > recorded_at as late from headrace.events"
        )
    assert row is not None
    assert tuple(row) == ("6f2d0c9e-5d0b-4a58-9a61-6b1f0a4c7e25", "2006-06-17", ["a:1"], "1", True)


async def test_interrupted_import_goes_on_by_running_it_again(database: Database) -> None:
    """Ctrl-C in the middle of a pipe: no traceback, exit 130, what was stored stays, the next run adds the rest."""
    text = log(3500)
    with started("import", "-", dsn=database.dsn) as process:
        assert process.stdin is not None
        # The pipe stays open: the command waits for more when the signal comes.
        process.stdin.write(text[: len(log(2500))])
        process.stdin.flush()
        await until(lambda: count_at_least(database, 2000), message="two chunks are stored", timeout=30)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)

    assert process.returncode == 130
    assert b"Traceback" not in out + err
    assert b"stopped after 2,000 events; run it again to go on" in err
    again = headrace("import", "-", dsn=database.dsn, stdin=text)
    assert "1,500 events added, 2,000 were there already" in again.out
    assert [number for _, _, number in await stored(database)] == list(range(3500))


async def count_at_least(database: Database, number: int) -> bool:
    """Tell whether so many events are visible."""
    return len(await stored(database)) >= number


async def test_two_imports_of_one_log_at_once(database: Database, tmp_path: Path) -> None:
    """Two processes import the same log at the same time: every event is there once, versions have no hole."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(log(4000))
    with started("import", str(path), dsn=database.dsn) as one, started("import", str(path), dsn=database.dsn) as two:
        outputs = [process.communicate(timeout=60) for process in (one, two)]

    assert [process.returncode for process in (one, two)] == [0, 0], outputs
    events = await stored(database)
    assert sorted(number for _, _, number in events) == list(range(4000))
    assert {(stream, version) for stream, version, _ in events} == {(f"s-{n // 6}", n % 6 + 1) for n in range(4000)}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.jsonl"], 2, "missing.jsonl: No such file or directory"),
        (["."], 2, ".: Is a directory"),
        ([], 2, "Missing argument 'FILE"),
    ],
)
def test_what_cannot_be_opened(
    database: Database, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    """A file that is not there is one message and exit code 2, before anything is stored."""
    outcome = headrace("import", *arguments, dsn=database.dsn, cwd=tmp_path)

    assert (outcome.code, "Traceback" in outcome.err) == (code, False)
    assert message in outcome.err


async def test_memory_is_bounded_by_bytes(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long lines make small chunks: what is held at once is bounded by bytes as well as by count."""
    monkeypatch.setattr(importing, "CHUNK_BYTES", 10_000)
    path = tmp_path / "long.jsonl"
    path.write_bytes(b"".join(line(n, data={"n": n, "x": "x" * 4000}) for n in range(30)))
    sizes: list[int] = []
    note: Callable[[importing.Imported], None] = lambda done: sizes.append(done.events)  # noqa: E731
    async with await Pool.open(database.dsn) as pool:
        with path.open("rb") as file:
            await import_file(file, await PostgresEvents.open(pool), note)

    assert sizes == list(range(3, 31, 3))


async def test_unnamed_refusals_name_the_lines_of_the_chunk(database: Database) -> None:
    """A key that no index can hold is refused by the server without a culprit: the lines of the chunk are named."""
    stream = "".join(chr(0x4E00 + n * 37 % 20_000) for n in range(5000))
    outcome = headrace("import", "-", dsn=database.dsn, stdin=line(1) + line(2, stream=stream))

    assert outcome.code == 2
    assert "lines 1 to 2" in outcome.err or "line 2" in outcome.err
    assert await stored(database) == []
