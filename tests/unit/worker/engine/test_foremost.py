"""Of several errors, the one that decides."""

import pytest

from headrace.domain.errors import LeaseLost, TransactionAborted, Unavailable
from headrace.engine.foremost import foremost

LOST, GONE, ABORTED, OTHER = LeaseLost("lost"), Unavailable("gone"), TransactionAborted("again"), ValueError("mine")


@pytest.mark.parametrize(
    ("errors", "decides"),
    [
        ([OTHER, GONE, LOST], LOST),
        ([OTHER, ABORTED, GONE], GONE),
        ([OTHER, ABORTED], OTHER),
        ([OTHER, BaseExceptionGroup("inner", [GONE, BaseExceptionGroup("innermost", [LOST])])], LOST),
    ],
)
def test_a_lost_lease_outranks_an_outage_and_an_outage_the_rest(
    errors: list[BaseException], decides: BaseException
) -> None:
    """Nothing may be written after a lost lease, whatever else went wrong at the same time."""
    assert foremost(BaseExceptionGroup("many", errors)) is decides
