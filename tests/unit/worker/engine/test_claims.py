"""Whether a claim took all there was, so that no further one need be sent to hear so."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from headrace.domain.ids import LeaseId, PartitionId, Position, Run
from headrace.engine.assignment import Assignment
from headrace.engine.tracked import Tracked
from headrace.ports.work import ClaimedPart, ClaimGroup, ClaimRequest, Loaded, LoadedPartition
from support.stubs import event, loaded

RUN, LEASE = Run(1), LeaseId(9)


def group(*backlogs: int, takeovers: int = 0) -> ClaimGroup:
    """A group of partitions with these backlogs."""
    parts = tuple(ClaimedPart(PartitionId(n), backlog, 0, takeovers) for n, backlog in enumerate(backlogs))
    return ClaimGroup(RUN, LEASE, parts)


def assigned(claimed: ClaimGroup, *partitions: LoadedPartition, partitioned: bool) -> Assignment:
    """A group with what was loaded of it."""
    tracked = cast("Tracked", SimpleNamespace(partitioned=partitioned))
    return Assignment(tracked, claimed, Loaded(partitions), 0)


@pytest.mark.parametrize(
    ("claimed", "lanes", "is_all"),
    [
        (group(1, 1), 1, True),
        (group(1, 1, 1), 1, False),
        (group(9, 1), 1, False),
        (group(1, 1), 2, False),
        (group(1, takeovers=2), 1, False),
    ],
    ids=["fits", "as many partitions as may be", "as many events as may be", "a share", "a suspect goes alone"],
)
def test_only_a_claim_that_no_bound_has_cut_is_all(claimed: ClaimGroup, lanes: int, is_all: bool) -> None:
    """Three partitions or ten events at most: what fills a bound may have been cut by it."""
    assert ClaimRequest(RUN, LEASE, lanes, 3, 10, 0, 15.0).leaves_nothing(claimed) == is_all


@pytest.mark.parametrize(
    ("backlog", "is_partial"), [(2, False), (3, False), (4, True)], ids=["less", "all of it", "more"]
)
def test_a_group_that_was_not_loaded_whole_leaves_more(backlog: int, is_partial: bool) -> None:
    """What a limit has left behind is due again at once: nobody else says so. Vanished entries are loaded."""
    partition = loaded(0, event(3), event(4), vanished=(5,), position=Position(2))
    assignment = assigned(group(backlog), partition, partitioned=True)
    assert assignment.leaves_more(Position(99)) == is_partial


@pytest.mark.parametrize(("line", "leaves"), [(4, False), (5, True)], ids=["all of it", "more"])
def test_a_batch_of_the_log_leaves_what_lies_above_it(line: int, leaves: bool) -> None:
    """An unpartitioned run has one ready row without a backlog: whether more is due is told by the line."""
    partition = replace(loaded(0, event(3), event(4), position=Position(2)), to=Position(4))
    assignment = assigned(group(0), partition, partitioned=False)
    assert assignment.leaves_more(Position(line)) == leaves
