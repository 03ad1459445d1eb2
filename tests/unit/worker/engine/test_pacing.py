"""How much a claim takes."""

from headrace.engine.pacing import FLOOR_SECONDS, UNKNOWN_EVENTS, Pace


def pace() -> Pace:
    """A pace with the ceilings of the design."""
    return Pace(1.0, 1000, 2500, 1_000_000)


def test_the_first_claim_is_small() -> None:
    """Before anything was measured a claim takes few events, so that a slow handler shows itself early."""
    assert pace().portion().events == UNKNOWN_EVENTS


def test_a_claim_holds_about_one_second_of_work() -> None:
    """200 ms an event: five events fill the second, and a share is cut down to one."""
    slow = pace()
    slow.observe(10, 2.0)

    portion = slow.portion()

    assert (portion.events, portion.floor) == (5, 1)


def test_a_claim_is_rounded_to_whole_events() -> None:
    """A little over 200 ms an event: still five, or a key with five events would be claimed twice."""
    slow = pace()
    slow.observe(10, 2.15)

    assert slow.portion().events == 5


def test_a_large_group_outweighs_a_trickle() -> None:
    """After single events, whose time is that of the claim around them, the first burst is not cut for long."""
    one = pace()
    for _ in range(20):
        one.observe(1, 0.02)
    assert one.portion().events == 50

    one.observe(50, 0.03)
    one.observe(100, 0.03)

    assert one.portion().events > 400


def test_a_slow_event_is_noticed_after_fast_ones() -> None:
    """One slow event outweighs thousands of fast ones: the next claim is small."""
    one = pace()
    one.observe(2500, 0.25)
    one.observe(1, 1.0)

    assert one.portion().events <= 4


def test_fast_work_is_bounded_by_the_ceiling_and_never_cut_into_crumbs() -> None:
    """20 µs an event: the ceiling of events holds, and no share is below 50 ms of work."""
    fast = pace()
    fast.observe(1000, 0.02)

    portion = fast.portion()

    assert (2500, int(FLOOR_SECONDS / 0.00002)) == (portion.events, portion.floor)


def test_large_events_shrink_the_claim() -> None:
    """A claim never asks for more events than fit into the byte budget, and always for one."""
    heavy = pace()
    heavy.observe(1000, 0.001)
    heavy.observe_bytes(10, 1_000_000)

    assert heavy.portion().events == 10

    heavy.observe_bytes(1, 10**12)

    assert heavy.portion().events == 1


def test_a_limited_run_claims_no_more_than_is_left_of_it() -> None:
    """The rest of a bounded run is a ceiling like the others."""
    assert pace().portion(7).events == 7
    assert pace().portion(0).events == 1


def test_slow_groups_are_not_claimed_ahead() -> None:
    """A lane claims its next group ahead only where that keeps no key waiting."""
    one = pace()
    seen = [one.may_prefetch]
    one.observe(10, 0.1)
    seen.append(one.may_prefetch)
    one.observe(10, 20.0)
    seen.append(one.may_prefetch)

    assert seen == [False, True, False]
