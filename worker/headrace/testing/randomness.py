"""Chance and identity that are the same in every run of a test."""

import random
from uuid import UUID

from headrace.domain.ids import LeaseId

LEASE_BITS = 63


class SeededRandomness:
    """Implements ``ports.clock.Randomness`` from a seed; two of one seed draw the same."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose

    def uniform(self, low: float, high: float) -> float:
        """Return a number between the two."""
        return self._random.uniform(low, high)

    def lease_id(self) -> LeaseId:
        """Return the next id, never 0."""
        return LeaseId(self._random.getrandbits(LEASE_BITS) or 1)


class FixedIdentity:
    """Implements ``ports.clock.Identity``: worker ``number`` of a test."""

    def __init__(self, number: int = 1, name: str | None = None) -> None:
        self._id = UUID(int=number)
        self._name = name or f"worker-{number}"

    @property
    def id(self) -> UUID:
        """The id, made of the number."""
        return self._id

    @property
    def name(self) -> str:
        """The name for people."""
        return self._name
