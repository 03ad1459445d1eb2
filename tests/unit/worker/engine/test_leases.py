"""The book of leases."""

import pytest

from headrace.domain.errors import LeaseLost
from headrace.domain.ids import LeaseId
from headrace.engine.leases import LeaseBook

ONE, TWO = LeaseId(1), LeaseId(2)


class Now:
    """A monotonic time that is set by hand."""

    seconds = 100.0

    def __call__(self) -> float:
        """Return it."""
        return self.seconds


def book() -> tuple[LeaseBook, Now]:
    """A book with two leases of 15 s, claimed at 100 and vouched for until 130."""
    now = Now()
    made = LeaseBook(now)
    for lease in (ONE, TWO):
        made.ask(lease, "a", 100.0, 15.0)
        made.vouch(lease, 30.0)
    return made, now


def test_a_lease_ends_by_the_own_clock_counted_from_before_the_claim_was_sent() -> None:
    """A worker stops trusting a lease that it may not have renewed in time, whatever the database says."""
    made, now = book()
    now.seconds = 114.9
    made.require(ONE)
    now.seconds = 115.0

    with pytest.raises(LeaseLost):
        made.require(ONE)


def test_a_renewal_counts_from_when_it_was_sent() -> None:
    """The answer to a renewal may be late; the lease runs from before the question."""
    made, now = book()
    now.seconds = 114.0
    made.renewed([ONE], {ONE}, 105.0, 15.0)
    now.seconds = 119.9
    made.require(ONE)
    now.seconds = 120.0

    assert not made.is_mine(ONE)


def test_a_lease_that_is_missing_from_the_answer_is_lost() -> None:
    """What a renewal did not find is lost, once, and is not renewed again."""
    made, _ = book()

    lost = made.renewed([ONE, TWO], {TWO}, 105.0, 15.0)

    assert [held.id for held in lost] == [ONE]
    assert made.was_lost(ONE)
    assert made.renewable() == [TWO]
    assert made.renewed([ONE, TWO], {TWO}, 106.0, 15.0) == []


def test_a_lease_that_is_only_asked_for_is_not_renewed() -> None:
    """Its row is not there yet: a renewal between the claim's start and its commit would take it for lost."""
    made, _ = book()
    asked = LeaseId(3)
    made.ask(asked, "a", 100.0, 15.0)

    assert asked not in made.renewable()

    made.vouch(asked, 30.0)

    assert asked in made.renewable()
    assert made.is_mine(asked)


def test_a_lease_in_its_own_flush_is_not_lost() -> None:
    """The flush deletes the lease and may hold its row: the renewal that skips it says nothing."""
    made, _ = book()
    made.ending(ONE)

    assert made.renewed([ONE, TWO], {TWO}, 105.0, 15.0) == []
    assert made.is_mine(ONE)


def test_nobody_renews_for_a_lane_that_has_not_reported() -> None:
    """A hung handler must not keep its keys for ever."""
    made, now = book()
    made.vouch(TWO, 60.0)
    now.seconds = 131.0

    assert made.renewable() == [TWO]


def test_a_lease_that_could_not_be_released_is_given_back_later() -> None:
    """A release that failed is not forgotten; it is handed out once, and can be put back."""
    made, _ = book()
    made.drop(ONE)

    assert not made.is_mine(ONE)
    assert made.take_dropped() == [ONE]
    assert made.take_dropped() == []

    made.put_back([ONE])

    assert made.take_dropped() == [ONE]
