"""What one look at the running demonstration found, as values: what the screen draws and what the course goes by."""

from dataclasses import dataclass
from enum import StrEnum


class Condition(StrEnum):
    """How a worker process is, as who started it knows."""

    STARTING = "starting"
    WORKING = "working"
    FROZEN = "frozen"
    KILLED = "killed"
    DRAINING = "draining"
    ENDED = "ended"

    @property
    def is_there(self) -> bool:
        """Whether the process works, or will."""
        return self in (Condition.STARTING, Condition.WORKING)

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self not in (Condition.KILLED, Condition.ENDED)


@dataclass(frozen=True, slots=True)
class SubscriptionFigures:
    """One subscription; ``inbox`` are events that are routed and not handled, ``behind`` those behind failing keys."""

    name: str
    kind: str
    status: str
    unrouted: int = 0
    inbox: int = 0
    behind: int = 0
    in_flight: int = 0
    lag: float | None = None
    partitions: int = 0
    parked: int = 0
    handled: int = 0

    @property
    def is_caught_up(self) -> bool:
        """Whether nothing is left, not even behind a failing key."""
        return self.status == "active" and self.unrouted == 0 and self.inbox == 0

    @property
    def is_blocked_only(self) -> bool:
        """Whether all that is left waits behind failing keys."""
        return self.status == "active" and self.unrouted == 0 and self.inbox == self.behind


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """One worker process and what it holds; ``ends_in``: seconds until its first lease runs out."""

    number: int
    pid: int
    release: int
    condition: Condition
    leases: int = 0
    keys: int = 0
    events: int = 0
    ends_in: float | None = None


@dataclass(frozen=True, slots=True)
class FailingKey:
    """One failing key; so many events wait behind the one that fails."""

    subscription: str
    key: str
    position: int
    state: str
    error: str
    waiting: int


@dataclass(frozen=True, slots=True)
class Figures:
    """One look. ``at``: seconds since the start; ``rate``: handled events a second, over all subscriptions."""

    at: float
    subject: str
    events: int
    imported: int = 0
    rate: float = 0.0
    subscriptions: tuple[SubscriptionFigures, ...] = ()
    workers: tuple[WorkerFigures, ...] = ()
    failing: tuple[FailingKey, ...] = ()
    wanted: int = 4

    @property
    def unrouted(self) -> int:
        """Events that no router has looked at yet, over all subscriptions."""
        return sum(one.unrouted for one in self.subscriptions)

    @property
    def inbox(self) -> int:
        """Events that are routed and not handled, over all subscriptions."""
        return sum(one.inbox for one in self.subscriptions)

    @property
    def partitions(self) -> int:
        """Partitions that have work."""
        return sum(one.partitions for one in self.subscriptions)

    @property
    def handled(self) -> int:
        """Handled events, over all subscriptions."""
        return sum(one.handled for one in self.subscriptions)

    @property
    def is_caught_up(self) -> bool:
        """Whether every subscription has handled everything."""
        return len(self.subscriptions) == self.wanted and all(one.is_caught_up for one in self.subscriptions)

    @property
    def is_blocked_only(self) -> bool:
        """Whether nothing is left but what waits behind failing keys."""
        return len(self.subscriptions) == self.wanted and all(one.is_blocked_only for one in self.subscriptions)

    def worker(self, number: int) -> WorkerFigures:
        """Return one worker.

        Raises:
            LookupError: there is none of that number.

        """
        return next(one for one in self.workers if one.number == number)


class Mark(StrEnum):
    """What kind of line of the story it is."""

    STEP = "step"
    GOOD = "good"
    BAD = "bad"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class StoryLine:
    """Something that has happened, so many seconds after the start."""

    at: float
    mark: Mark
    text: str
