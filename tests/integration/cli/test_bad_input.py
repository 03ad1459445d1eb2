"""Whatever a person gets wrong: one message that names the fix, its exit code, no traceback, nothing half stored."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from support.commands import Outcome, command, environment, headrace
from support.databases import Database
from support.small_disk import small_disk
from support.waiting import until

GOOD_LINE = b'{"stream":"s","type":"T","data":{}}\n'
USAGE, UNREACHABLE, ERRORS = 2, 3, 1
DOWN = "postgresql://app:s3cret@127.0.0.1:1/shop"

HEAD = "from headrace import App, Connection, Event, Stream, batch, on, projector, reactor\n"
MODULES = {
    "good.py": HEAD
    + """
@projector("orders", partition_by=Stream())
class Orders:
    @on()
    async def take(self, event: Event) -> None: ...

app = App(Orders(), name="shop")
""",
    "raises.py": "limit = int('ten')\n",
    "misspelt.py": "def app(:\n",
    "exits.py": "import sys\nsys.exit('done')\n",
    "needs.py": "import nowhere_installed\n",
    "secret.py": "raise RuntimeError('no answer from postgresql://app:s3cret@db/shop')\n",
    "unfillable.py": HEAD
    + """
@projector("orders", partition_by=Stream())
class Orders:
    @on("OrderPlaced")
    async def placed(self, event: Event, limit: int) -> None: ...

app = App(Orders(), name="shop")
""",
    "untyped.py": HEAD
    + """
@projector("orders", partition_by=Stream())
class Orders:
    @on("OrderPlaced")
    async def placed(self, event: Event, something) -> None: ...

app = App(Orders(), name="shop")
""",
    "twice.py": HEAD
    + """
@projector("orders", partition_by=Stream())
class Orders:
    @on()
    async def take(self, event: Event) -> None: ...

@reactor("orders", partition_by=Stream())
class Mails:
    @on()
    async def send(self, event: Event) -> None: ...

app = App(Orders(), Mails(), name="shop")
""",
    "both.py": HEAD
    + """
@projector("orders", partition_by=Stream())
class Orders:
    @on("Placed")
    async def one(self, event: Event) -> None: ...

    @batch("Placed")
    async def many(self, events: list[Event]) -> None: ...

app = App(Orders(), name="shop")
""",
    "wide.py": HEAD
    + """
from headrace import setup

@projector("wide", partition_by=Stream())
class Wide:
    @setup
    async def create(self, db: Connection) -> None:
        await db.execute("create table wide (n int, filling text) tablespace small")

    @batch()
    async def write(self, events: list[Event], db: Connection) -> None:
        await db.executemany("insert into wide values ($1, repeat('x', 500))", [(e.data["n"],) for e in events])

app = App(Wide(), name="shop")
""",
    "log.jsonl": GOOD_LINE.decode() * 1200 + "nonsense\n",
}
A_ROLE = "do $$ begin create role powerless login; exception when duplicate_object then end $$"
NEWER = "insert into headrace.migrations (number, name, checksum) values (9901, '9901_post_taken_away', 'x')"
OLDER = "delete from headrace.migrations where number = (select max(number) from headrace.migrations)"
FULL = """
    create function no_room() returns trigger language plpgsql as
        $$ begin raise exception using errcode = '53100', message = 'could not extend file: No space left'; end $$;
    create trigger no_room before insert on headrace.events execute function no_room();
"""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is wrong: what is typed, what the message must say, the exit code."""

    name: str
    typed: str
    says: tuple[str, ...]
    code: int = USAGE
    dsn: str | None = None
    """None: the test's own database; `{dsn}` in it stands for that one, `{host}` for its host and port."""
    before: str = ""
    """Statements that make the database what it should not be."""
    stdin: bytes = b""
    keeps: int = 0
    """How many events stay: whole chunks before what is wrong."""


CASES = [
    # A log that is none.
    Case(
        "malformed line",
        "import log.jsonl",
        ("log.jsonl: line 1201: it is not a JSON object", "1,000 events", "again"),
        keeps=1000,
    ),
    Case(
        "line without type",
        "import -",
        ("standard input: line 2: the field 'type' is missing",),
        stdin=GOOD_LINE + b'{"stream":"s","data":{}}\n',
    ),
    Case(
        "cut gzip",
        "import -",
        ("line 1: the packed file is damaged or cut short", "pack it again"),
        stdin=b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
    ),
    Case("a file that is not there", "import nothing.jsonl", ("nothing.jsonl: No such file or directory",)),
    # A database that cannot be the one that was meant.
    Case("no DSN", "status", ("set HEADRACE_DSN or give --dsn",), dsn=""),
    Case(
        "another kind of DSN",
        "status",
        ("must look like postgresql://", "not like mysql://"),
        dsn="mysql://u:s3cret@h/d",
    ),
    Case(
        "a port that is no number", "status", ("the DSN cannot be used", "port"), dsn="postgresql://u:s3cret@h:many/d"
    ),
    Case(
        "a password that is not escaped", "status", ("the DSN cannot be used", "%2F"), dsn="postgresql://u:s3c/ret@h/d"
    ),
    Case(
        "an unknown role",
        "status",
        ('role "stranger" does not exist', "correct the DSN"),
        dsn="postgresql://stranger@{host}/x",
    ),
    Case(
        "no such database",
        "import -",
        ('database "x" does not exist', "correct the DSN"),
        dsn="postgresql://postgres@{host}/x",
    ),
    Case("an unknown option in the DSN", "status", ('"nonsense"', "correct the DSN"), dsn="{dsn}?nonsense=1"),
    Case(
        "database down",
        "status",
        ("cannot be reached", "check HEADRACE_DSN or --dsn, and that the server runs"),
        UNREACHABLE,
        DOWN,
    ),
    Case("database down, import", "import log.jsonl", ("cannot be reached", "check HEADRACE_DSN"), UNREACHABLE, DOWN),
    Case("database down, run", "run good:app", ("cannot be reached", "check HEADRACE_DSN"), UNREACHABLE, DOWN),
    Case(
        "an unknown host",
        "status",
        ("cannot be reached", "check HEADRACE_DSN"),
        UNREACHABLE,
        "postgresql://u@nowhere.invalid/d",
    ),
    # A schema that this program cannot work with.
    *(
        Case(
            f"missing right, {typed.split()[0]}",
            typed,
            ("permission denied", "headrace migrate --grants ROLE"),
            dsn="postgresql://powerless@{host}/{name}",
        )
        for typed in ("status", "import log.jsonl", "setup good:app", "worker good:app", "wait orders")
    ),
    Case(
        "missing right, migrate",
        "migrate",
        ("permission denied", "migrate as the role that shall own, or owns, the schema 'headrace'"),
        dsn="postgresql://powerless@{host}/{name}",
    ),
    *(
        Case(
            f"missing migration, {typed.split()[0]}",
            typed,
            ("lacks 0", "run `headrace migrate`", "as the owner"),
            before=OLDER,
        )
        for typed in ("status", "import log.jsonl", "run good:app", "worker good:app")
    ),
    *(
        Case(
            f"newer schema, {typed.split()[0]}",
            typed,
            ("has 9901_post_taken_away of a later release", "update this program"),
            before=NEWER,
        )
        for typed in ("status", "migrate", "import log.jsonl", "worker good:app")
    ),
    Case(
        "database disk full",
        "import -",
        ("no room left to write", "make room on its disk"),
        UNREACHABLE,
        before=FULL,
        stdin=GOOD_LINE,
    ),
    # An application that is none.
    Case("no module", "worker nowhere:app", ("no module 'nowhere'", "importable from the current folder")),
    Case("no attribute", "worker good:main", ("good has no 'main'", "the apps in it are good:app")),
    Case("a file name", "setup good.py:app", ("write good:app",)),
    Case("no app at all", "worker", ("give APP as module:attribute, or set HEADRACE_APP",)),
    Case("raises at import", "worker raises:app", ("importing raises failed with ValueError", "raises.py, line 1")),
    Case("syntax error", "run misspelt:app", ("importing misspelt failed with SyntaxError", "misspelt.py, line 1")),
    Case("exits at import", "run exits:app", ("a call of sys.exit()", "if __name__ == '__main__'")),
    Case("needs what is not installed", "run needs:app", ("needs the module 'nowhere_installed'", "install it")),
    Case("a secret in the error of an import", "worker secret:app", ("RuntimeError", "app:***@db")),
    Case(
        "a parameter that nothing fills",
        "worker unfillable:app",
        ("Orders.placed: nothing can fill the parameter 'limit: int'", "Connection"),
    ),
    Case("a parameter without a type", "setup untyped:app", ("Orders.placed", "'something", "annotation")),
    Case("two subscribers of one name", "worker twice:app", ("'orders'", "Mails", "name")),
    Case("two handlers of one event", "worker both:app", ("Orders", "Placed", "@batch")),
    Case("an unknown subscriber", "worker good:app --subscriber nothing", ("'nothing'", "orders")),
    Case("a setting that cannot be used", "worker good:app --lanes 0", ("--lanes (HEADRACE_LANES)",)),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the modules of somebody who is about to start."""
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


async def do(database: Database, *statements: str) -> None:
    """Run statements as the owner."""
    async with database.connection() as connection:
        for statement in statements:
            await connection.execute(statement)


async def stored(database: Database) -> dict[str, int]:
    """Return how many rows each table of the schema has."""
    async with database.connection() as connection:
        tables = await connection.fetch("select tablename from pg_tables where schemaname = 'headrace'")
        return {row[0]: await connection.fetchval(f'select count(*) from headrace."{row[0]}"') for row in tables}


def typed(database: Database, folder: Path, case: Case, *more: str) -> Outcome:
    """Type it."""
    places = {"dsn": database.dsn, "host": f"127.0.0.1:{database.cluster.port}", "name": database.name}
    dsn = database.dsn if case.dsn is None else case.dsn.format_map(places)
    return headrace(*case.typed.split(), *more, dsn=dsn, cwd=folder, stdin=case.stdin, variables={"metrics_port": "0"})


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_one_message_and_a_code(database: Database, folder: Path, case: Case) -> None:
    """One message says what is wrong and how to put it right; the code is the published one; nothing is half stored."""
    await do(database, A_ROLE, *([case.before] if case.before else []))
    before = await stored(database)

    outcome = typed(database, folder, case)

    errors = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
    assert (outcome.code, outcome.out, len(errors)) == (case.code, "", 1), outcome
    said = outcome.err[outcome.err.index("error: ") :]
    assert [words for words in case.says if words not in said] == [], said
    assert "Traceback" not in outcome.err
    assert "s3c" not in outcome.err
    assert await stored(database) == before | {"events": before["events"] + case.keeps}


@pytest.mark.parametrize(
    "name", ["malformed line", "database down", "raises at import", "a password that is not escaped"]
)
def test_debug_shows_where(database: Database, folder: Path, name: str) -> None:
    """With --debug the traceback stands before the same message, and no password in either."""
    case = next(case for case in CASES if case.name == name)

    outcome = typed(database, folder, case, "--debug")

    assert outcome.code == case.code
    assert outcome.err.index("Traceback") < outcome.err.index("error: ")
    assert "s3c" not in outcome.err


async def test_an_import_goes_on_once_there_is_room(database: Database) -> None:
    """A full disk keeps nothing of the chunk that it stopped; the same import adds what is missing, once."""
    log = b"".join(line(n) for n in range(5000))
    with small_disk(database.cluster, 512) as disk:
        try:
            await do(database, disk.create, "alter table headrace.events set tablespace small")
            stopped = headrace("import", "-", dsn=database.dsn, stdin=log)
            there = (await stored(database))["events"]
            disk.resize(8192)
            again = headrace("import", "-", dsn=database.dsn, stdin=log)
            async with database.connection() as connection:
                numbers = await connection.fetch("select (data->>'n')::int n from headrace.events order by position")
        finally:
            disk.resize(65536)
            await do(database, "alter table headrace.events set tablespace pg_default", "drop tablespace small")

    assert stopped.code == UNREACHABLE
    assert "error: the database has no room left to write" in stopped.err
    assert f"standard input: stopped after {there:,} events; run it again to go on" in stopped.err
    assert 0 < there < 5000
    assert there % 1000 == 0
    assert again.code == 0
    assert [row["n"] for row in numbers] == list(range(5000))


async def test_a_worker_waits_until_there_is_room(database: Database, folder: Path) -> None:
    """While the disk of a read model is full no key is blamed for it; then the worker goes on and each row is there."""
    headrace("import", "-", dsn=database.dsn, stdin=b"".join(line(n) for n in range(3000)))
    with small_disk(database.cluster, 256) as disk:
        try:
            await do(database, disk.create)
            with (folder / "said").open("wb") as said, working(database, folder, said) as worker:
                await until(lambda: "no room left" in (folder / "said").read_text(), 60, "the disk is full")
                disk.resize(8192)
                code = await asyncio.to_thread(worker.wait, 90)
            async with database.connection() as connection:
                rows = await connection.fetch("select n from wide order by n")
        finally:
            disk.resize(65536)
            await do(database, "drop table if exists wide", "drop tablespace small")

    assert (code, "Traceback" in (folder / "said").read_text()) == (0, False)
    assert [row["n"] for row in rows] == list(range(3000))
    assert (await stored(database))["failures"] == 0


def line(number: int) -> bytes:
    """Return one line of a log of seven streams."""
    return json.dumps({"stream": f"s-{number % 7}", "type": "T", "data": {"n": number}}).encode() + b"\n"


@contextmanager
def working(database: Database, folder: Path, said: IO[bytes]) -> Iterator["subprocess.Popen[bytes]"]:
    """Yield a worker that ends once it has caught up, killed at the end if it still runs."""
    process = subprocess.Popen(
        command("worker", "wide:app", "--until-caught-up", "--timeout", "80"),
        env=environment(database.dsn, metrics_port="0"),
        cwd=folder,
        stdout=said,
        stderr=said,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


WRITES = [["status"], ["status", "-o", "json"], ["--help"], ["import", "log.jsonl"], ["migrate", "--grants", "r"]]


@pytest.mark.parametrize("arguments", WRITES, ids=" ".join)
def test_output_that_finds_no_room(database: Database, folder: Path, arguments: list[str]) -> None:
    """A full disk under standard output is one message and exit code 1, also when it only shows at the last byte."""
    (folder / "log.jsonl").write_bytes(GOOD_LINE)
    with Path("/dev/full").open("wb") as full:
        done = written(database, folder, full, *arguments)

    said = done.stderr.decode()
    assert done.returncode == ERRORS
    assert said.startswith("error: the output cannot be written: No space left on device; make room on that disk")
    assert said.count("\n") == 1


@pytest.mark.parametrize("arguments", WRITES, ids=" ".join)
def test_a_pipe_that_nobody_reads(database: Database, folder: Path, arguments: list[str]) -> None:
    """`headrace status | head -0`: nobody reads, nobody is told; the code is a shell's for a closed pipe."""
    (folder / "log.jsonl").write_bytes(GOOD_LINE)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = written(database, folder, pipe, *arguments)

    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def written(
    database: Database, folder: Path, where: IO[bytes], *arguments: str
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command whose output goes to a file of the system."""
    return subprocess.run(
        command(*arguments),
        env=environment(database.dsn),
        cwd=folder,
        stdout=where,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(("words", "code"), [("status", 0), ("status --nonsense", 2), ("import log.jsonl", 0)])
async def test_streams_that_the_caller_has_closed(database: Database, folder: Path, words: str, code: int) -> None:
    """Started without any standard stream a command does its work, and writes into nothing that it has opened."""
    (folder / "log.jsonl").write_bytes(GOOD_LINE)
    shell = f'exec "$@" {words} <&- >&- 2>&-'
    done = subprocess.run(
        ["/bin/sh", "-c", shell, "sh", *command()], env=environment(database.dsn), cwd=folder, check=False, timeout=60
    )

    assert done.returncode == code
    assert (await stored(database))["events"] == words.startswith("import")
    assert (folder / "log.jsonl").read_bytes() == GOOD_LINE
