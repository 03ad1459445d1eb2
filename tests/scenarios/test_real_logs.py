"""Real event logs, imported and folded in three ways by worker processes: the numbers of their README, exactly."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from support import databases
from support.commands import headrace
from support.databases import Database
from support.fleet import fleet
from support.golden import GOLDEN, assert_golden_streams, assert_golden_types, assert_golden_whole, log_or_skip
from support.invariants import assert_sound
from support.scenes import value

WORKER_SECONDS = 280


@pytest.fixture(scope="module")
def imported(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Database]]:
    """Return the database of a log, imported once by `headrace import`."""
    version = databases.default_version().removeprefix("pg")
    cluster = request.getfixturevalue(f"cluster{version}")
    template = request.getfixturevalue(f"template{version}")
    made: dict[str, Database] = {}
    with ExitStack() as stack:

        def database_of(name: str) -> Database:
            if name not in made:
                path = log_or_skip(name)
                made[name] = stack.enter_context(databases.cloned(cluster, template, f"log {name}"))
                outcome = headrace("import", str(path), "-o", "json", dsn=made[name].dsn, timeout=200)
                assert outcome.code == 0, outcome
                assert [file["added"] for file in outcome.json] == [GOLDEN[name].events]
            return made[name]

        yield database_of


@pytest.mark.timeout(400)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", list(GOLDEN))
async def test_golden_numbers(
    imported: Callable[[str], Database], request: pytest.FixtureRequest, name: str, workers: int, scale: float
) -> None:
    """A projector by stream, a `@batch` projector and one over the whole log reproduce a log's golden numbers, with one
    worker process and with three: 624 types and numbers that come as text or as numbers among them.

    One worker alone takes its time with the largest log: below scale 0.5 it folds that one by batches only.
    """
    only = ["per_type"] if scale < 0.5 and name == "hospital-2011" and workers == 1 else []
    chosen = [word for subscriber in only for word in ("--subscriber", subscriber)]
    source = imported(name)
    with databases.cloned(source.cluster, source.name, request.node.name) as database, fleet(database.dsn) as team:
        for _ in range(workers):
            team.start("real_logs:app", "--until-caught-up", "--timeout", str(WORKER_SECONDS), *chosen)
        assert [worker.wait(WORKER_SECONDS + 20) for worker in team.workers] == [0] * workers
        assert await value(database, "select count(*) from headrace.failures") == 0
        await assert_golden_types(database, GOLDEN[name])
        if not only:
            await assert_golden_streams(database, GOLDEN[name])
            await assert_golden_whole(database, GOLDEN[name])
        await assert_sound(database)


@pytest.mark.parametrize("name", ["sepsis", "traffic-fines"])
async def test_importing_again_adds_nothing(imported: Callable[[str], Database], name: str) -> None:
    """The second import of a log finds every event there already, by the ids that the text of the log gives them."""
    database = imported(name)
    again = headrace("import", str(log_or_skip(name)), "-o", "json", dsn=database.dsn, timeout=200)
    assert again.code == 0, again
    assert [(file["added"], file["known"]) for file in again.json] == [(0, GOLDEN[name].events)]
    assert await value(database, "select count(*) from headrace.events") == GOLDEN[name].events
    await assert_sound(database)
