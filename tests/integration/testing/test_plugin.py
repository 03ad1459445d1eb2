"""The pytest plugin as an application's tests use it: in a pytest of its own, on a throw-away database."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import environment

READ_MODELS = """
from pydantic import BaseModel

from headrace import App, Connection, Event, PartitionKey, Stream, on, projector, setup


class OrderPlaced(BaseModel):
    total: int


@projector("orders", partition_by=Stream())
class Orders:
    @setup
    async def create(self, db: Connection) -> None:
        await db.execute("create table orders (id text, total int)")

    @on(OrderPlaced)
    async def placed(self, event: Event[OrderPlaced], key: PartitionKey, db: Connection) -> None:
        if event.data.total < 0:
            raise ValueError("below nothing")
        await db.execute("insert into orders values ($1, $2)", key, event.data.total)


app = App(Orders(), name="shop")
"""
HEAD = "import pytest\nfrom read_models import OrderPlaced, Orders, app\n"


class Project:
    """A folder with an application and its tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "read_models.py").write_text(READ_MODELS, "utf-8")
        (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\nfilterwarnings = error\n", "utf-8")

    def pytest(self, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run tests, in a process of their own."""
        (self.folder / "test_it.py").write_text(HEAD + tests, "utf-8")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *options]
        return subprocess.run(
            command, cwd=self.folder, env=environment(), capture_output=True, text=True, check=False, timeout=120
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project of this test's own."""
    return Project(tmp_path)


def test_given_run_then_in_five_lines(project: Project) -> None:
    """Events in, rows out, on a database that is the test's own: a second test finds nothing of the first."""
    done = project.pytest("""
@pytest.mark.parametrize("turn", [1, 2])
def test_orders(database_run, turn):
    database_run.given("order-1", OrderPlaced(total=3), OrderPlaced(total=4))
    database_run.run(Orders())
    database_run.then("select id, total from orders order by total", [("order-1", 3), ("order-1", 4)])


def test_again(database_run):
    database_run.given("order-1", OrderPlaced(total=3))
    assert database_run.run(app).processed == 1
    database_run.given("order-2", OrderPlaced(total=4))
    assert database_run.run().processed == 1
    assert database_run.rows("select count(*) from orders where total > $1", 3) == [(1,)]


def test_in_memory(memory_run):
    memory_run.given("order-1", OrderPlaced(total=3))
    memory_run.run(app)
    memory_run.then_sent("insert into orders", "order-1", 3)
""")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_a_failure_says_what_differs(project: Project) -> None:
    """Missing and unexpected rows, the failing key behind them, and what was forgotten are in the message."""
    done = project.pytest("""
def test_rows(database_run):
    database_run.given("order-1", OrderPlaced(total=3))
    database_run.given("order-2", OrderPlaced(total=-1))
    database_run.run(app, failing=True)
    database_run.then("select id, total from orders", [("order-1", 4)])


def test_error(database_run):
    database_run.given("order-2", OrderPlaced(total=-1))
    database_run.run(app)


def test_forgotten(database_run):
    database_run.execute("create table orders (id text)")
    database_run.then("select id from orders", [("order-1",)])
""")
    assert done.returncode == 1, done.stdout + done.stderr
    said = done.stdout
    assert "missing     ('order-1', 4)" in said
    assert "unexpected  ('order-1', 3)" in said
    assert "orders#order-2 at event 2: ValueError" in said
    assert "orders#order-2 at event 1:" in said
    assert "below nothing" in said
    assert "nothing was run: run(app), or run(OrdersByCustomer())" in said
    assert "3 failed" in said
    assert "During handling of the above exception" not in said
    assert "kit/" not in said.replace("\\", "/"), "frames of the kit are hidden"


def test_a_query_that_the_database_refuses_is_told_plainly(project: Project) -> None:
    """A missing table of the test's own: the database's error and the line of the test, and nothing to migrate."""
    done = project.pytest("""
def test_rows(database_run):
    database_run.then("select * from nowhere", [])


def test_execute(database_run):
    database_run.execute("insert into nowhere values (1)")
""")
    said = done.stdout
    assert said.count('E       asyncpg.exceptions.UndefinedTableError: relation "nowhere" does not exist') == 2, said
    assert "headrace migrate" not in said
    assert "asyncio" not in said


def test_a_failure_names_events_that_nobody_saw(project: Project) -> None:
    """On a database and in memory: what got no key, and a type that is near one that is wanted."""
    done = project.pytest("""
from headrace import Event, NewEvent, Tag, on, projector


@projector("stock", partition_by=Tag("sku"))
class Stock:
    @on("Received")
    async def received(self, event: Event):
        pass


EVENTS = [NewEvent("Received", {}), NewEvent("Recieved", {}, tags=["sku:1"]), NewEvent("Received", {}, tags=["sku:1"])]


def test_rows(database_run):
    database_run.given("a", *EVENTS)
    database_run.run(Stock())
    database_run.then("select 1", [(2,)])


def test_sent(memory_run):
    memory_run.given("a", *EVENTS)
    memory_run.run(Stock())
    memory_run.then_sent("insert")


def test_nothing_overlooked(memory_run):
    memory_run.given("a", EVENTS[2])
    memory_run.run(Stock())
    memory_run.then_sent("insert")
""")
    assert done.returncode == 1, done.stdout + done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("E ")]
    no_key = "1 event of type 'Received' has no key by Tag('sku'): passed over by 'stock'"
    assert sum(no_key in line for line in told) == 2, done.stdout
    assert sum("no subscriber wants type 'Recieved'; did you mean 'Received'?" in line for line in told) == 2


def test_unused_it_loads_nothing(project: Project) -> None:
    """A run that asks for no fixture loads the plugin and the package's door, and no room."""
    done = project.pytest("").stdout  # the head imports the application: look before that
    assert "no tests ran" in done
    code = (
        "import sys, pytest, headrace.testing.plugin\n"
        "print(*sorted(n for n in sys.modules if n.startswith('headrace') or n in {'asyncpg', 'pydantic'}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert loaded.stdout.split() == ["headrace", "headrace.testing", "headrace.testing.plugin"]


def test_a_postgresql_can_be_chosen(project: Project) -> None:
    """`--headrace-postgresql embedded` takes the wheel's; a word that is none of the three is refused."""
    tests = """
def test_version(database_run, headrace_cluster):
    ((version,),) = database_run.rows("show server_version_num")
    assert int(version) // 10000 == headrace_cluster.major >= 18
"""
    done = project.pytest(tests, "--headrace-postgresql", "embedded")
    assert done.returncode == 0, done.stdout
    assert project.pytest(tests, "--headrace-postgresql", "oracle").returncode == 4
