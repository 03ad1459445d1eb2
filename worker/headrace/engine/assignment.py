"""What a lane has in hand: one claim group of one subscription, with its loaded events."""

from dataclasses import dataclass

from headrace.domain.ids import LeaseId, Position
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

    def leaves_more(self, line: Position) -> bool:
        """Tell whether more is due as soon as the group ends: claimed and not loaded, or further up in the log.

        While the group is in hand whoever else looks finds nothing and says so; nobody but its lane can know better.
        """
        if not self.tracked.partitioned:
            return any(p.to < line for p in self.partitions)
        return self.group.backlog > sum(len(p.events) + len(p.vanished) for p in self.partitions)
