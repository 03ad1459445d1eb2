"""The leases that this process holds, as its threads see them.

Lanes add and remove on the event loop; the keeper reads and renews from its own thread. The book
never decides who owns a key: the fence in the database does. It only spares a worker from going on
when it can know better.
"""

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import inf

from headrace.domain.errors import LeaseLost
from headrace.domain.ids import LeaseId


class NotRenewed(LeaseLost):
    """This process's own clock or renewal says that the lease may be somebody else's by now."""


@dataclass(slots=True)
class HeldLease:
    """One lease: until when it surely lasts, and until when its lane vouches for being alive.

    Both are monotonic times. ``deadline`` is counted from before the claim or renewal was sent.
    """

    id: LeaseId
    subscription: str
    deadline: float
    vouched_until: float
    lost: bool = False
    ending: bool = False


@dataclass(slots=True)
class LeaseBook:
    """All leases of one process, behind a lock."""

    monotonic: Callable[[], float]
    _held: dict[LeaseId, HeldLease] = field(default_factory=dict)
    _dropped: list[LeaseId] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, lease: LeaseId, subscription: str, sent_at: float, ttl: float) -> None:
        """Note a lease whose claim is about to be sent, at ``sent_at``.

        Whatever becomes of the answer, it can be given back. It is not renewed before ``vouch`` says
        that it was granted: a renewal that did not find it would take it for lost.
        """
        with self._lock:
            self._held[lease] = HeldLease(lease, subscription, sent_at + ttl, -inf)

    def remove(self, lease: LeaseId) -> None:
        """Forget a lease that was flushed, released or lost."""
        with self._lock:
            self._held.pop(lease, None)

    def drop(self, lease: LeaseId) -> None:
        """Forget a lease whose release could not be sent; the keeper gives it back later."""
        with self._lock:
            if self._held.pop(lease, None) is not None:
                self._dropped.append(lease)

    def vouch(self, lease: LeaseId, seconds: float) -> None:
        """Say that the lane is alive and will report again within ``seconds``."""
        with self._lock:
            held = self._held.get(lease)
            if held is not None:
                held.vouched_until = self.monotonic() + seconds

    def ending(self, lease: LeaseId) -> None:
        """Say that the lease is about to be deleted by its own flush or release."""
        with self._lock:
            held = self._held.get(lease)
            if held is not None:
                held.ending = True

    def require(self, lease: LeaseId) -> None:
        """Raise NotRenewed when the lease is known to be lost or may have run out."""
        if not self.is_mine(lease):
            raise NotRenewed(f"lease {lease} is lost, or was not renewed in time")

    def is_mine(self, lease: LeaseId) -> bool:
        """Tell whether nothing speaks against still owning the lease."""
        with self._lock:
            held = self._held.get(lease)
            return held is not None and not held.lost and self.monotonic() < held.deadline

    def holds(self, lease: LeaseId) -> bool:
        """Tell whether the lease is in the book: neither ended nor given up."""
        with self._lock:
            return lease in self._held

    def was_lost(self, lease: LeaseId) -> bool:
        """Tell whether a renewal has found the lease gone."""
        with self._lock:
            held = self._held.get(lease)
            return held is not None and held.lost

    def renewable(self) -> list[LeaseId]:
        """Return the leases whose lanes vouch for themselves."""
        now = self.monotonic()
        with self._lock:
            return [h.id for h in self._held.values() if not h.lost and h.vouched_until >= now]

    def renewed(
        self, sent: Sequence[LeaseId], back: Collection[LeaseId], sent_at: float, ttl: float
    ) -> list[HeldLease]:
        """Take in the answer to a renewal; returns the leases that are found lost.

        A lease that is being ended may be missing from the answer because its own flush has the
        row: that is no loss.
        """
        lost = []
        with self._lock:
            for lease in sent:
                held = self._held.get(lease)
                if held is None:
                    continue
                if lease in back:
                    held.deadline = max(held.deadline, sent_at + ttl)
                elif not held.ending and not held.lost:
                    held.lost = True
                    lost.append(held)
        return lost

    def take_dropped(self) -> list[LeaseId]:
        """Return, and forget, the leases that wait to be given back."""
        with self._lock:
            dropped, self._dropped = self._dropped, []
            return dropped

    def put_back(self, leases: Sequence[LeaseId]) -> None:
        """Keep leases for a later try to give them back."""
        with self._lock:
            self._dropped.extend(leases)

    def held(self) -> list[HeldLease]:
        """Return all leases of this process."""
        with self._lock:
            return list(self._held.values())
