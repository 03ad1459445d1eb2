"""What every test can ask for: PostgreSQL clusters, a database of its own, the scale of heavy scenarios.

Markers follow folders: a test is `integration` because it lies in tests/integration/. `async def` tests run in an
event loop of their own. A test marked `both_versions` runs on the system's PostgreSQL (15 on Debian 12) and on the
wheel's 18.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.embedded.cluster import Cluster
from support import coroutines, databases
from support.databases import Database
from support.skips import SkipReport

TESTS = Path(__file__).parent
DEFAULT_SCALE = 0.1


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this test tree."""
    group = parser.getgroup("headrace")
    group.addoption(
        "--scale",
        type=float,
        default=float(os.environ.get("HEADRACE_SCALE", DEFAULT_SCALE)),
        help="size of heavy scenarios, 1.0 is the full one (default: HEADRACE_SCALE or 0.1)",
    )
    group.addoption("--soak", action="store_true", help="also run tests/soak")


def pytest_configure(config: pytest.Config) -> None:
    """Register the skip report; let child processes see the scale."""
    config.pluginmanager.register(SkipReport(), "headrace-skips")
    os.environ["HEADRACE_SCALE"] = str(config.getoption("--scale"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test by its folder, and leave the soak tests out unless they are wanted."""
    left_out: list[pytest.Item] = []
    for item in items:
        if not item.path.is_relative_to(TESTS):
            continue
        folder = item.path.relative_to(TESTS).parts[0]
        item.add_marker(getattr(pytest.mark, folder))
        if folder == "soak" and not config.getoption("--soak"):
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test marked `both_versions` once per PostgreSQL version."""
    if metafunc.definition.get_closest_marker("both_versions"):
        metafunc.parametrize("postgresql_version", list(databases.VERSIONS), indirect=True, scope="function")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = inspect.signature(pyfuncitem.obj).parameters
    coroutines.run_test(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in arguments}))
    return True


@pytest.fixture(scope="session")
def scale(request: pytest.FixtureRequest) -> float:
    """How large a heavy scenario is: 1.0 in `make soak`, 0.1 in `make test`."""
    return float(request.config.getoption("--scale"))


@pytest.fixture(scope="session")
def cluster15() -> Iterator[Cluster]:
    """The system's PostgreSQL (15 on Debian 12), shared by the run: never stop or kill it."""
    with Cluster(databases.programs_or_skip("system")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster18() -> Iterator[Cluster]:
    """The wheel's PostgreSQL 18, shared by the run: never stop or kill it."""
    with Cluster(databases.programs_or_skip("embedded")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def template15(cluster15: Cluster) -> str:
    """The name of the migrated template in cluster15."""
    return databases.make_template(cluster15)


@pytest.fixture(scope="session")
def template18(cluster18: Cluster) -> str:
    """The name of the migrated template in cluster18."""
    return databases.make_template(cluster18)


@pytest.fixture
def postgresql_version(request: pytest.FixtureRequest) -> str:
    """`pg15` or `pg18`: which PostgreSQL the fixtures below use."""
    return getattr(request, "param", None) or databases.default_version()


@pytest.fixture
def cluster(request: pytest.FixtureRequest, postgresql_version: str) -> Cluster:
    """The shared cluster of this test's version: never stop or kill it."""
    return request.getfixturevalue(postgresql_version.replace("pg", "cluster"))  # type: ignore[no-any-return]


@pytest.fixture
def database(request: pytest.FixtureRequest, cluster: Cluster, postgresql_version: str) -> Iterator[Database]:
    """A database of this test's own, with the migrated schema."""
    template = request.getfixturevalue(postgresql_version.replace("pg", "template"))
    with databases.cloned(cluster, template, request.node.name) as clone:
        yield clone


@pytest.fixture
def empty_database(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Database]:
    """A database of this test's own, without any schema."""
    with databases.cloned(cluster, None, request.node.name) as clone:
        yield clone


@pytest.fixture
def make_cluster(postgresql_version: str) -> Iterator[Callable[..., Cluster]]:
    """Start clusters of this test's own, which it may stop, restart and kill: `make_cluster({"fsync": "on"})`."""
    with ExitStack() as stack:

        def make(settings: Mapping[str, str] | None = None) -> Cluster:
            programs = databases.programs_or_skip(databases.VERSIONS[postgresql_version])
            return stack.enter_context(Cluster(programs, settings=settings))

        yield make


@pytest.fixture
def own_cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """A cluster of this test's own that flushes to disk, to be stopped, restarted and killed."""
    return make_cluster({"fsync": "on"})


@pytest.fixture
def own_database(request: pytest.FixtureRequest, own_cluster: Cluster) -> Iterator[Database]:
    """A database with the migrated schema in `own_cluster`."""
    with databases.cloned(own_cluster, databases.make_template(own_cluster), request.node.name) as clone:
        yield clone
