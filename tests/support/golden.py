"""The golden numbers of the real event logs, and how a test's read models are held against them.

Whoever folds a log with `support.apps.real_logs`, in whatever surroundings, must come to these, exactly.
"""

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from support.databases import Database
from support.fleet import TESTS
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


def log_or_skip(name: str) -> Path:
    """Return the file of a log, or skip the test."""
    path = DATA / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"the real logs are not there: {path.name} is missing in ../shared/data beside the repository")
    return path


async def assert_golden(database: Database, name: str) -> None:
    """Assert everything that the three projectors say of a log."""
    await assert_golden_streams(database, GOLDEN[name])
    await assert_golden_types(database, GOLDEN[name])
    await assert_golden_whole(database, GOLDEN[name])


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
