"""Keys that owners died with: one at a time in a process, on record before the load, never ahead of their turn."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.ids import LeaseId, PartitionId, Run
from headrace.engine.suspects import Suspects
from headrace.engine.tracked import Shared
from headrace.ports.work import ClaimedPart, ClaimGroup


class Told:
    """Stands for the lanes' port and the clock: notes what it is told."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fails = fails

    async def suspect(self, lease: LeaseId, part: PartitionId) -> None:
        """Note, or fail."""
        self.calls.append(("suspect", lease, part))
        if self.fails is not None:
            raise self.fails

    async def absolve(self, lease: LeaseId, part: PartitionId) -> None:
        """Note."""
        self.calls.append(("absolve", lease, part))

    async def release(self, lease: LeaseId) -> None:
        """Note."""
        self.calls.append(("release", lease))

    async def sleep(self, seconds: float) -> None:
        """Note."""
        self.calls.append(("sleep",))


def group(lease: int, takeovers: int) -> ClaimGroup:
    """Return a claim of one key with so many take-overs."""
    return ClaimGroup(Run(1), LeaseId(lease), (ClaimedPart(PartitionId(lease), 1, 0, takeovers),))


def lanes_of(told: Told, count: int = 2) -> list[Suspects]:
    """Return what the lanes of one process share."""
    shared = cast("Shared", SimpleNamespace(ports=SimpleNamespace(work=told, clock=told), trying=False))
    return [Suspects(shared, told.release) for _ in range(count)]


@pytest.mark.parametrize("takeovers", [0, 1, 5])
async def test_others_begin_at_once(takeovers: int) -> None:
    """A key that fewer than two owners died with begins, ahead as well; one that is to be set aside does, too."""
    told = Told()
    (lane,) = lanes_of(told, 1)
    assert await lane.begins(group(1, takeovers), ahead=True)
    assert told.calls == []


async def test_a_suspect_goes_on_record_before_it_begins() -> None:
    """Its owner counts itself; what is taken back afterwards is that and nothing else."""
    told = Told()
    (lane,) = lanes_of(told, 1)
    assert await lane.begins(group(7, 2), ahead=False)
    await lane.absolve()
    lane.done(LeaseId(7))
    await lane.absolve()
    assert told.calls == [("suspect", 7, 7), ("absolve", 7, 7)]


async def test_a_suspect_is_not_taken_ahead() -> None:
    """While another group is in hand a suspect is given back: it would be blamed for that group's end."""
    told = Told()
    (lane,) = lanes_of(told, 1)
    assert not await lane.begins(group(7, 3), ahead=True)
    assert told.calls == [("release", 7)]


async def test_one_suspect_at_a_time_in_a_process() -> None:
    """Another lane's suspect waits until the first one is done; the end of any other lease changes nothing."""
    told = Told()
    one, other = lanes_of(told)
    assert await one.begins(group(1, 2), ahead=False)
    assert not await other.begins(group(2, 4), ahead=False)
    one.done(LeaseId(9))
    other.done(LeaseId(2))
    assert not await other.begins(group(3, 4), ahead=False)
    one.done(LeaseId(1))
    assert await other.begins(group(4, 4), ahead=False)
    assert [call for call in told.calls if call[0] == "suspect"] == [("suspect", 1, 1), ("suspect", 4, 4)]
    assert [call for call in told.calls if call[0] == "release"] == [("release", 2), ("release", 3)]


async def test_a_record_that_fails_leaves_the_turn_to_others() -> None:
    """When the database does not answer, the next suspect may be tried."""
    told = Told(Unavailable("gone"))
    one, other = lanes_of(told)
    with pytest.raises(Unavailable):
        await one.begins(group(1, 2), ahead=False)
    told.fails = None
    assert await other.begins(group(2, 2), ahead=False)
