"""The real clock, chance and identity; the only place that asks the system for them."""

import asyncio
import os
import random
import secrets
import socket
import time
from datetime import UTC, datetime
from uuid import UUID, uuid4

from headrace.domain.ids import LeaseId

_LEASE_BITS = 63


class SystemClock:
    """Time of this machine (port ``Clock``)."""

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        await asyncio.sleep(seconds)


class SystemRandomness:
    """Chance of this machine (port ``Randomness``)."""

    def __init__(self) -> None:
        self._jitter = random.Random()  # noqa: S311 - jitter, not a secret

    def uniform(self, low: float, high: float) -> float:
        """Return a number between the two."""
        return self._jitter.uniform(low, high)

    def lease_id(self) -> LeaseId:
        """Return a random positive id; from the system's source, so that forked processes differ."""
        return LeaseId(secrets.randbits(_LEASE_BITS) or 1)


class SystemIdentity:
    """Who this process is (port ``Identity``)."""

    def __init__(self) -> None:
        self._id = uuid4()
        self._name = f"{socket.gethostname()}:{os.getpid()}"

    @property
    def id(self) -> UUID:
        """The id of this process's life."""
        return self._id

    @property
    def name(self) -> str:
        """Host name and process id."""
        return self._name
