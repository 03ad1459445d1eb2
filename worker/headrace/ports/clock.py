"""Time, chance and identity, handed in, so that decisions can be tested without waiting for any.

Nobody else in this package asks the system for the time or for a random number.
"""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from headrace.domain.ids import LeaseId


class Clock(Protocol):
    """The time of this process. Times that are stored are the database's, never these."""

    def now(self) -> datetime:
        """Return the wall time, with its zone."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, from an arbitrary start."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        ...


class Randomness(Protocol):
    """Chance: jitter and ids that nobody can repeat."""

    def uniform(self, low: float, high: float) -> float:
        """Return a number between the two, for jitter."""
        ...

    def lease_id(self) -> LeaseId:
        """Return a new random 63-bit id; never the same twice, across processes and restarts."""
        ...


class Identity(Protocol):
    """Who this process is, for as long as it lives."""

    @property
    def id(self) -> UUID:
        """The id of this process's life; another start is another id."""
        ...

    @property
    def name(self) -> str:
        """A name for people: host and process id."""
        ...
