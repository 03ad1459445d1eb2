"""What a lane has in hand: one claim group of one subscription, with its loaded events."""

from dataclasses import dataclass

from headrace.domain.ids import LeaseId
from headrace.engine.tracked import Tracked
from headrace.ports.work import ClaimGroup, Loaded, LoadedPartition


@dataclass(frozen=True, slots=True)
class Assignment:
    """A claimed and loaded group."""

    tracked: Tracked
    group: ClaimGroup
    loaded: Loaded
    lane: int

    @property
    def lease(self) -> LeaseId:
        """The lease that all of it is held under."""
        return self.group.lease

    @property
    def partitions(self) -> tuple[LoadedPartition, ...]:
        """The partitions with something to do."""
        return self.loaded.partitions

    @property
    def events(self) -> int:
        """How many events are loaded."""
        return sum(len(p.events) for p in self.partitions)

    @property
    def is_partial(self) -> bool:
        """Whether more was claimed than loaded: it is due again when the group ends."""
        return self.group.backlog > sum(len(p.events) + len(p.vanished) for p in self.partitions)
