"""The look after what does not run, once a second: who is in charge of it, and whether its set-up is done.

A start sets up what is new, but whoever is at it may die in the hook, and whoever starts may not be the one in
charge. So a living worker never leaves to a start what it can do itself. A hook may be slow: each set-up is a
task of its own, and must never keep the look at the other subscriptions waiting.
"""

import asyncio
from collections.abc import Sequence

from headrace.domain.engine_events import DatabaseLost
from headrace.domain.errors import LeaseLost, NotFinished, TransactionAborted, Unavailable
from headrace.engine.foremost import foremost
from headrace.engine.lifecycle import Lifecycle
from headrace.engine.tracked import Shared, Tracked

LOOK_SECONDS = 1.0


class Setups:
    """Takes charge of what stands back, and sets up what is new or failed to be, when their time has come."""

    def __init__(self, shared: Shared, lifecycle: Lifecycle, tracked: Sequence[Tracked], *, setup: bool) -> None:
        """Take what to look after; not ``setup``: nothing is set up here, a person does that."""
        self._shared = shared
        self._lifecycle = lifecycle
        self._tracked = tracked
        self._setup = setup
        self._going: set[str] = set()

    async def run(self) -> None:
        """Look again and again until cancelled; set-ups that are under way are cancelled with it."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self._shared.ports.clock.sleep(LOOK_SECONDS)
                    try:
                        await self._look(tasks)
                    except (Unavailable, TransactionAborted) as error:
                        self._lost(error)
        except BaseExceptionGroup as group:
            raise foremost(group) from group

    async def _look(self, tasks: asyncio.TaskGroup) -> None:
        for one in self._tracked:
            await self._lifecycle.take_charge(one)
        if not self._setup:
            return
        idle = [one for one in self._tracked if one.name not in self._going]
        for one in await self._lifecycle.without_setup(idle):
            self._going.add(one.name)
            tasks.create_task(self._set_up(one), name=f"set-up of {one.name}")

    async def _set_up(self, one: Tracked) -> None:
        try:
            await self._lifecycle.set_up_when_due(one)
        except (NotFinished, LeaseLost):
            # Another worker is at it, or has taken it over: the next look tells how that went.
            return
        except (Unavailable, TransactionAborted) as error:
            self._lost(error)
        finally:
            self._going.discard(one.name)

    def _lost(self, error: Exception) -> None:
        self._shared.ports.observer.notice(DatabaseLost("", str(error), LOOK_SECONDS))
