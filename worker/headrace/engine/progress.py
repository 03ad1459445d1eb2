"""From handled events to what a flush writes. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from headrace.domain.ids import PartitionId, Position
from headrace.ports.work import LoadedPartition, Progress


def part_of(partition: LoadedPartition, first: int, end: int) -> LoadedPartition:
    """Return a partition of only the loaded events ``first`` to ``end`` - 1; those before ``first`` are flushed."""
    events = partition.events[first:end]
    position = partition.events[first - 1].position if first else partition.position
    last = events[-1].position
    return replace(
        partition,
        position=position,
        attempts=0 if first else partition.attempts,
        takeovers=0 if first else partition.takeovers,
        events=events,
        vanished=tuple(v for v in partition.vanished if position < v < last),
        to=last,
    )


@dataclass(slots=True)
class _Part:
    """One partition: what is handled of it, and how much of that has been taken for a flush."""

    loaded: LoadedPartition
    position: Position
    unpassed: list[Position]
    handled: list[Position] = field(default_factory=list)
    taken: int = 0

    @property
    def whole(self) -> bool:
        return len(self.handled) == len(self.loaded.events)

    def take(self, *, partitioned: bool) -> Progress | None:
        new = self.handled[self.taken :]
        last = self.handled[-1] if self.handled else self.position
        if partitioned:
            passed = [v for v in self.unpassed if self.whole or v < last]
            self.unpassed = self.unpassed[len(passed) :]
        else:
            passed = []
            last = self.loaded.to if self.whole else last
        to = max([last, *passed], default=last)
        if to <= self.position and not new and not passed:
            return None
        # What was handled at or below the position goes to the flush as well, which refuses it: tables that do not
        # agree must not let a handler's effect commit without its inbox entry.
        made = Progress(self.loaded.part, to, tuple(new + passed), len(passed), self.loaded.attempts > 0, self.position)
        self.taken, self.position = len(self.handled), to
        return made


class Done:
    """Which loaded events of a group have been handled, and which of these no flush has written yet.

    Vanished positions below the last handled one, or all of them once everything loaded is handled,
    count as passed: their events can never be handled.
    """

    def __init__(self, partitions: Iterable[LoadedPartition], *, partitioned: bool) -> None:
        """Start with nothing handled."""
        self._partitioned = partitioned
        self._parts: dict[PartitionId, _Part] = {
            p.part: _Part(p, p.position, sorted(p.vanished)) for p in sorted(partitions, key=lambda p: p.part)
        }
        # What has moved since the last flush: a reactor flushes often, and few of its keys at a time.
        self._moved = dict.fromkeys(p for p, part in self._parts.items() if part.unpassed or not partitioned)
        self.count = 0
        self.unflushed = 0

    def add(self, partition: LoadedPartition, position: Position) -> None:
        """Note one handled event; events of a partition come in position order."""
        self._parts[partition.part].handled.append(position)
        self._moved[partition.part] = None
        self.count += 1
        self.unflushed += 1

    def handled(self, partition: LoadedPartition) -> int:
        """Return how many events of one partition are handled."""
        return len(self._parts[partition.part].handled)

    def close(self, partition: LoadedPartition) -> None:
        """Leave a partition out of all later flushes: it has left the group."""
        del self._parts[partition.part]
        self._moved.pop(partition.part, None)

    def take(self) -> tuple[Progress, ...]:
        """Return what the next flush has to write, in partition order; each event is given out once."""
        moved = sorted(self._moved)
        self.unflushed = 0
        self._moved = {}
        made = (self._parts[part].take(partitioned=self._partitioned) for part in moved)
        return tuple(p for p in made if p is not None)
