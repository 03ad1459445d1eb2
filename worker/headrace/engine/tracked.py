"""A subscription as one running engine sees it, and what all duties of an engine share."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headrace.domain.ids import PartitionKey, Run
from headrace.domain.subscription import Status, Subscription
from headrace.engine.leases import LeaseBook
from headrace.engine.pacing import Pace
from headrace.engine.tuning import Tuning
from headrace.ports.catalog import Catalog
from headrace.ports.clock import Clock, Randomness
from headrace.ports.events import EventReader
from headrace.ports.hooks import Hooks
from headrace.ports.observer import Observer
from headrace.ports.routing import Routing
from headrace.ports.subscribers import BoundSubscriber, Context
from headrace.ports.work import LoadedPartition, Work

STANDS_BACK = (
    "is declared otherwise (types, streams, tags or key) by another version of this app, which live workers run: this "
    "version stands back and takes charge when they have ended"
)


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything the engine talks to."""

    reader: EventReader
    routing: Routing
    work: Work
    catalog: Catalog
    hooks: Hooks
    clock: Clock
    randomness: Randomness
    observer: Observer


@dataclass(slots=True)
class Tracked:
    """One subscription: its code, its stored row as last seen, and how fast it goes here.

    ``declared`` is the digest of this code's declaration; ``told`` whether it was said that another one is in charge;
    ``asked_at`` is the monotonic time at which this one was last declared again.
    """

    bound: BoundSubscriber
    stored: Subscription
    pace: Pace
    timeout: float
    max_parts: int
    declared: str = ""
    told: bool = False
    asked_at: float = float("-inf")

    @property
    def name(self) -> str:
        """The subscription's name."""
        return self.bound.name

    @property
    def run(self) -> Run:
        """The run that is being worked on."""
        return self.stored.run

    @property
    def partitioned(self) -> bool:
        """Whether keys are kept apart, or the whole log is handled in order."""
        return self.stored.partitioned

    @property
    def in_charge(self) -> bool:
        """Whether the stored declaration is this code's; otherwise its routers and lanes stand back."""
        return self.stored.declared == self.declared

    def take_status(self, status: Status, epoch: int) -> bool:
        """Note what the database says; tells whether it is new, and so the whole row is worth a look."""
        is_new = epoch != self.stored.epoch or status is not self.stored.status
        if is_new:
            self.stored = replace(self.stored, status=status, epoch=epoch)
        return is_new

    def context(self, partition: LoadedPartition, *, alone: bool = True) -> Context:
        """Return what handlers of this partition may know of their call; not ``alone``: a batch over several keys."""
        key = PartitionKey(partition.key) if alone else None
        return Context(self.name, key, attempt=partition.attempts + 1)


@dataclass(slots=True)
class Shared:
    """State that the duties of one engine share; the census is replaced whole, never changed.

    ``trying``: a lane has a key in hand that owners died with; one at a time, so that none is blamed for another.
    """

    options: Tuning
    ports: Ports
    book: LeaseBook
    census: Mapping[str, int] = field(default_factory=dict)
    draining: bool = False
    trying: bool = False

    def lanes_of(self, name: str) -> int:
        """Return how many live lanes work on a subscription, at least this process's own."""
        return max(self.census.get(name, 0), self.options.lanes, 1)
