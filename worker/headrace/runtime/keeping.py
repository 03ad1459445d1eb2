"""The keeper's thread: a loop and connections of its own, so that no handler can stop a renewal."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from headrace.domain.engine_events import DatabaseLost
from headrace.domain.errors import HeadraceError
from headrace.engine.keeper import Keeper
from headrace.ports.observer import Observer

OUTAGE_SECONDS = 1.0
STOP_SECONDS = 10.0

OpenKeeper = Callable[[], AbstractAsyncContextManager[Keeper]]
"""Opens the keeper's connections on the loop that calls it."""


class KeeperThread:
    """Runs a keeper until it is stopped; an outage only delays it."""

    def __init__(self, open_keeper: OpenKeeper, observer: Observer) -> None:
        """Take how to open the keeper; nothing runs before ``start``."""
        self._open = open_keeper
        self._observer = observer
        self._thread = threading.Thread(target=self._run, name="headrace-keeper", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._first_round = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wait_first_round(self, timeout: float) -> bool:
        """Wait until every duty was done once (the heartbeat among them); tells whether it was."""
        return self._first_round.wait(timeout)

    def stop(self) -> None:
        """Sign off and end the thread; waits for it. Stopping twice is harmless."""
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        while not self._stop.is_set():
            try:
                async with self._open() as keeper:
                    await self._keep(keeper, self._stop)
                    await keeper.leave()
            except HeadraceError as error:
                self._observer.notice(DatabaseLost("", str(error), OUTAGE_SECONDS))
                await self._pause(OUTAGE_SECONDS, self._stop)

    async def _keep(self, keeper: Keeper, stop: asyncio.Event) -> None:
        while not stop.is_set():
            delay = await keeper.step()
            if keeper.all_done_once:
                self._first_round.set()
            await self._pause(delay, stop)

    @staticmethod
    async def _pause(seconds: float, stop: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(seconds):
                await stop.wait()
        except TimeoutError:
            return
