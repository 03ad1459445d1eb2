"""The pytest plugin: `database_run` and `memory_run`, and what they stand on.

Every run of pytest loads this module, where headrace is installed, asked for or not. So it imports pytest and nothing
else; what a fixture needs is loaded by the first test that asks for it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.embedded.cluster import Cluster
    from headrace.testing.kit.database_run import DatabaseRun
    from headrace.testing.kit.databases import TestDatabase
    from headrace.testing.kit.memory_run import MemoryRun

OPTION = "headrace_postgresql"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a person choose the PostgreSQL."""
    help_text = "PostgreSQL of the headrace fixtures: system (Debian's, say), embedded (the wheel), or auto"
    parser.getgroup("headrace").addoption(
        "--headrace-postgresql", dest=OPTION, choices=("auto", "system", "embedded"), default=None, help=help_text
    )
    parser.addini(OPTION, f"{help_text} (default: auto, the system's where there is one)", default="auto")


@pytest.fixture(scope="session")
def headrace_cluster(pytestconfig: pytest.Config) -> "Iterator[Cluster]":
    """A throw-away PostgreSQL server, one for the whole session."""
    from headrace.testing.kit.databases import open_cluster  # noqa: PLC0415 - see above

    with open_cluster(pytestconfig.getoption(OPTION) or pytestconfig.getini(OPTION)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def headrace_template(headrace_cluster: "Cluster") -> str:
    """The name of a database with the migrated schema, which each test gets a copy of."""
    from headrace.testing.kit.databases import make_template  # noqa: PLC0415 - see above

    return make_template(headrace_cluster)


@pytest.fixture
def headrace_database(
    headrace_cluster: "Cluster", headrace_template: str, request: pytest.FixtureRequest
) -> "Iterator[TestDatabase]":
    """A database of this test's own: schema migrated, no event in it, gone at the end."""
    from headrace.testing.kit.databases import cloned  # noqa: PLC0415 - see above

    with cloned(headrace_cluster, headrace_template, request.node.name) as database:
        yield database


@pytest.fixture
def database_run(headrace_database: "TestDatabase") -> "Iterator[DatabaseRun]":
    """Subscribers on a real database: `given` events, `run`, then `rows`."""
    from headrace.testing.kit.database_run import DatabaseRun  # noqa: PLC0415 - see above

    with DatabaseRun(headrace_database) as run:
        yield run


@pytest.fixture
def memory_run() -> "Iterator[MemoryRun]":
    """Subscribers without a database, and a clock that moves by hand: `given` events, `run`, then `sent`."""
    from headrace.testing.kit.memory_run import MemoryRun  # noqa: PLC0415 - see above

    with MemoryRun() as run:
        yield run
