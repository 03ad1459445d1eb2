"""What a failed comparison of rows says."""

import pytest

from headrace.testing.kit.wording import MOST_LINES, difference, unsent

QUERY = "select a,\n  b from t"


def test_missing_and_unexpected_rows_are_named() -> None:
    """Rows are compared as often as they occur; what is right is only counted; rows need not be hashable."""
    said = difference(QUERY, [("a", 1), ("b", 2), ("b", 2)], [("b", 2), ("c", [3])], in_order=True)
    assert said is not None
    assert said.splitlines() == [
        "the rows of select a, b from t are not the expected ones (1 of 3 are there):",
        "  missing     ('a', 1)",
        "  missing     ('b', 2)",
        "  unexpected  ('c', [3])",
    ]


@pytest.mark.parametrize("in_order", [True, False])
def test_order_counts_unless_it_is_said_not_to(in_order: bool) -> None:
    """Rows in another order are a difference of their own, and none where order does not matter."""
    said = difference(QUERY, [(1,), (2,)], [(2,), (1,)], in_order=in_order)
    assert (said is None) is not in_order
    assert in_order is False or "are right, their order is not" in str(said)
    assert difference(QUERY, [(1,)], [(1,)], in_order=in_order) is None


def test_long_differences_are_cut() -> None:
    """A thousand wrong rows do not bury the message."""
    said = difference(QUERY, [(n,) for n in range(1000)], [], in_order=True)
    assert said is not None
    assert len(said.splitlines()) == MOST_LINES + 2
    assert said.splitlines()[-1] == f"  … and {1000 - MOST_LINES} more"


def test_nothing_sent_is_said() -> None:
    """An expectation with nothing to compare with says so."""
    assert unsent("insert", (), []).splitlines()[-1] == "  nothing"
