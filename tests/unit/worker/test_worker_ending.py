"""How a worker that was to work until all is handled says that it has ended."""

import pytest

from headrace.cli.running import how_it_ended
from headrace.engine.results import RunError, RunResult

ONCE = (RunError("orders", None, None, "it failed once, and then it did not"),)


@pytest.mark.parametrize(
    ("result", "word"),
    [
        (RunResult(5), "caught up"),
        (RunResult(5, errors=ONCE), "caught up"),
        (RunResult(5, has_pending=True), "stopped"),
        (RunResult(5, has_pending=True, blocked=True), "stopped"),
        (RunResult(5, blocked=True, errors=ONCE), "not caught up"),
    ],
)
def test_only_who_has_caught_up_says_so(result: RunResult, word: str) -> None:
    """Work that is left, or that waits for a person, is never called caught up."""
    assert how_it_ended(result) == word
