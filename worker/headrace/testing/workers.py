"""The heartbeat table in memory."""

from collections import Counter
from datetime import timedelta
from uuid import UUID

from headrace.ports.workers import Beat, Census
from headrace.testing.memory import MemoryStore, WorkerRow

DEAD_AFTER = timedelta(hours=1)


class MemoryWorkers:
    """Implements ``ports.workers.Workers``."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def beat(self, beat: Beat) -> Census:
        """Write the beat and count live lanes."""
        await self._store.round_trip()
        now, before = self._store.now(), self._store.workers.get(beat.id)
        steady_since = before.steady_since if before is not None and before.is_live(now) else now
        self._store.workers.put(beat.id, WorkerRow(beat, now, steady_since))
        lanes: Counter[str] = Counter()
        for live in self._store.live_beats():
            lanes.update(dict.fromkeys(live.subscriptions, live.lanes))
        return Census(dict(lanes))

    async def leave(self, worker: UUID) -> None:
        """Remove the worker's row and those of the long dead."""
        await self._store.round_trip()
        now = self._store.now()
        for id, row in list(self._store.workers.items()):
            if id == worker or now - row.beat_at > DEAD_AFTER:
                self._store.workers.drop(id)
