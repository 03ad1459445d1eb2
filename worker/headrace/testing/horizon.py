"""The horizon's source in memory: the sequence, and appends that were opened and not ended."""

from headrace.domain.horizon import Holder, HorizonProbe
from headrace.domain.ids import START, Position
from headrace.ports.horizon import HolderReport, SourceCheck
from headrace.testing.memory import MemoryStore

CONTIGUOUS_LIMIT = 10_000


class MemoryHorizonSource:
    """Implements ``ports.horizon.HorizonSource``."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def probe(self) -> HorizonProbe:
        """Look at the sequence and at who may still insert."""
        await self._store.round_trip()
        log = self._store.log
        return HorizonProbe(log.sequence, tuple(opened.holder for opened in log.open), server="memory")

    async def contiguous_from(self, base: Position, upto: Position) -> Position:
        """Return how far events follow without a hole."""
        await self._store.round_trip()
        last = base
        while last < min(upto, base + CONTIGUOUS_LIMIT) and self._store.log.get(Position(last + 1)) is not None:
            last = Position(last + 1)
        return last

    async def describe(self, holder: Holder) -> HolderReport | None:
        """Return who has an append open."""
        await self._store.round_trip()
        for opened in self._store.log.open:
            if opened.holder == holder:
                age = (self._store.now() - opened.since).total_seconds()
                return HolderReport(
                    holder.pid, None, opened.application, "memory", "idle in transaction", opened.since, age
                )
        return None

    async def check(self) -> SourceCheck:
        """Find nothing wrong: positions are drawn where they are inserted."""
        await self._store.round_trip()
        return SourceCheck()

    async def stored_position(self) -> Position:
        """Return the highest position that a reader has moved to; where it was put at its start proves nothing."""
        await self._store.round_trip()
        cursors = self._store.cursors
        positions = [cursor.position for cursor in cursors.values() if cursor.routed]
        for row in self._store.partitions.values():
            subscription = self._store.subscription_of(row.run)
            is_log = subscription is not None and not subscription.stored.partitioned
            if is_log and row.position > cursors[row.run].position:
                positions.append(row.position)
        return max(positions, default=START)
