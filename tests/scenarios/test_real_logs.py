"""Real event logs, imported and folded in three ways by worker processes: the numbers of their README, exactly."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from support import databases
from support.commands import headrace
from support.databases import Database
from support.fleet import TESTS, fleet
from support.invariants import assert_sound
from support.scenes import rows, value

DATA = TESTS.parent.parent / "shared" / "data"


@dataclass(frozen=True, slots=True)
class Golden:
    """What a projection over a whole log must come to."""

    events: int
    streams: int
    types: int
    events_of: dict[str, int]
    last_of: dict[str, int]
    amount: Decimal = Decimal(0)
    expense: Decimal = Decimal(0)
    executions: int = 0
    returns: int = 0
    payers: int = 0
    paid: Decimal | None = None
    groups: tuple[int, int] = (0, 0)
    group_of: tuple[tuple[str, int], ...] = ()


GOLDEN = {
    "sepsis": Golden(
        events=15_214,
        streams=1_050,
        types=16,
        events_of={
            "Leucocytes": 3383, "CRP": 3262, "LacticAcid": 1466, "Admission NC": 1182, "ER Triage": 1053,
            "ER Registration": 1050, "ER Sepsis Triage": 1049, "IV Antibiotics": 823, "IV Liquid": 753,
            "Release A": 671, "Return ER": 294, "Admission IC": 117, "Release B": 56, "Release C": 25,
            "Release D": 24, "Release E": 6,
        },
        last_of={},
        returns=294,
        groups=(0, 15_214),
    ),
    "traffic-fines": Golden(
        events=34_724,
        streams=10_000,
        types=11,
        events_of={
            "Create Fine": 10_000, "Send Fine": 6570, "Payment": 4910, "Insert Fine Notification": 4635,
            "Add penalty": 4635, "Send for Credit Collection": 3387, "Insert Date Appeal to Prefecture": 232,
            "Send Appeal to Prefecture": 227, "Receive Result Appeal from Prefecture": 55,
            "Notify Result Appeal to Offender": 54, "Appeal to Judge": 19,
        },
        last_of={
            "Payment": 4535, "Send for Credit Collection": 3384, "Send Fine": 1893, "Send Appeal to Prefecture": 182,
            "Appeal to Judge": 5, "Notify Result Appeal to Offender": 1,
        },
        amount=Decimal("345580.0"),
        expense=Decimal("86632.1"),
        payers=4626,
        paid=Decimal("210495.90"),
        groups=(0, 34_724),
    ),
    "hospital-2011": Golden(
        events=150_291,
        streams=1_143,
        types=624,
        events_of={"aanname laboratoriumonderzoek": 15_353},
        last_of={},
        executions=262_275,
        groups=(42, 16),
        group_of=(("General Lab Clinical Chemistry", 94_917), ("Nursing ward", 31_066)),
    ),
}  # fmt: skip

WORKER_SECONDS = 280


def log_or_skip(name: str) -> Path:
    """Return the file of a log, or skip the test."""
    path = DATA / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"the real logs are not there: {path.name} is missing in ../shared/data beside the repository")
    return path


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


async def assert_golden_streams(database: Database, golden: Golden) -> None:
    """Assert what the projector by stream says."""
    by_stream = await rows(
        database,
        "select sum(events), count(*), sum(amount), sum(expense), sum(executions), count(*) filter (where returns > 0),"
        " count(*) filter (where payments > 0), sum(paid), bool_and(in_order) from per_stream",
    )
    assert by_stream == [
        (
            golden.events,
            golden.streams,
            golden.amount,
            golden.expense,
            golden.executions,
            golden.returns,
            golden.payers,
            golden.paid,
            True,
        )
    ]
    if golden.last_of:
        assert dict(await rows(database, "select last_type, count(*) from per_stream group by 1")) == golden.last_of


async def assert_golden_types(database: Database, golden: Golden) -> None:
    """Assert what the batch projector says."""
    sums = "select sum(events), count(distinct type), sum(amount), sum(expense), sum(executions) from per_type"
    assert_sums(await rows(database, sums), golden)
    assert_types(await rows(database, "select type, sum(events) from per_type group by 1"), golden)
    groups = "select name, sum(events) from per_group group by 1 order by 2 desc"
    assert_groups(await rows(database, groups), golden)


async def assert_golden_whole(database: Database, golden: Golden) -> None:
    """Assert what the projector over the whole log says, and that it went through it in order."""
    sums = "select count(*), count(distinct type), sum(amount), sum(expense), sum(executions) from whole_log"
    assert_sums(await rows(database, sums), golden)
    assert_types(await rows(database, "select type, count(*) from whole_log group by 1"), golden)
    groups = "select grp, count(*) from whole_log group by 1 order by 2 desc"
    assert_groups(await rows(database, groups), golden)
    assert await value(database, "select count(distinct stream) from whole_log") == golden.streams
    disordered = """
        select count(*) from (select position < lag(position) over (order by place) as back from whole_log) x where back
    """
    assert await value(database, disordered) == 0


def assert_sums(found: list[tuple[Any, ...]], golden: Golden) -> None:
    """Assert the sums over all events."""
    assert found == [(golden.events, golden.types, golden.amount, golden.expense, golden.executions)]


def assert_types(found: list[tuple[Any, ...]], golden: Golden) -> None:
    """Assert how often types occur."""
    events_of = dict(found)
    assert golden.events_of.items() <= events_of.items()
    assert max(events_of.values()) == max(golden.events_of.values())


def assert_groups(found: list[tuple[Any, ...]], golden: Golden) -> None:
    """Assert how many groups there are, how many events have none, and which are the largest."""
    named = [(name, events) for name, events in found if name]
    assert (len(named), sum(events for name, events in found if not name)) == golden.groups
    assert tuple(named[: len(golden.group_of)]) == golden.group_of
