"""How one process works: sizes, times and names, handed in by the composition root."""

from dataclasses import dataclass

from headrace.domain.subscription import Start


@dataclass(frozen=True, slots=True)
class Tuning:
    """Sizes and times of one engine; all times in seconds.

    ``group_events`` and ``group_partitions`` are the ceilings of a claim group; inside them the
    measured time per event decides. ``max_bytes`` bounds the event data that the lanes of this process
    load at a time, ``route_bytes`` what a router reads to make keys in Python; one event always fits.
    """

    app: str
    worker_name: str = "headrace"
    version: str = "0"
    lanes: int = 1
    lease_seconds: float = 15.0
    handler_timeout: float = 30.0
    drain_seconds: float = 25.0
    flush_seconds: float = 120.0
    route_batch: int = 5000
    group_events: int = 2500
    group_partitions: int = 1000
    group_seconds: float = 1.0
    max_bytes: int = 32 * 1024 * 1024
    route_bytes: int = 8 * 1024 * 1024
    beat_seconds: float = 1.0
    poll_min: float = 0.01
    poll_max: float = 0.5
    reactor_flush_events: int = 250
    reactor_flush_seconds: float = 0.2
    setup_wait: float = 60.0
    retry_min: float = 5.0
    retry_max: float = 300.0
    sweep_slice: int = 20_000
    start_from: Start | None = None
    source: str | None = None

    @property
    def load_bytes(self) -> int:
        """What one lane may load at a time: its share, so that more lanes do not take more memory."""
        return max(self.max_bytes // max(self.lanes, 1), 1)
