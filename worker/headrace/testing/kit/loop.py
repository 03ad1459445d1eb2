"""An event loop of one test's own, for words that a plain `def` test says without `await`.

A test that runs in a loop itself (under pytest-asyncio, say) may say them too: they then run in a thread, and the test
waits for it.
"""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

__tracebackhide__ = True  # pytest shows the line of the test, not ours
T = TypeVar("T")


class OwnLoop:
    """Runs coroutines to their end, one after the other, all in one loop."""

    def __init__(self) -> None:
        # A factory of its own: without one the loop would become the thread's, and the test's own would be lost.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return what it returns."""
        if not _is_in_a_loop():
            return self._runner.run(work)
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="headrace-test") as thread:
            return thread.submit(self._runner.run, work).result()

    def close(self) -> None:
        """End what still runs in the loop, and the loop."""
        if not _is_in_a_loop():
            self._runner.close()
            return
        with ThreadPoolExecutor(max_workers=1) as thread:
            thread.submit(self._runner.close).result()


def _is_in_a_loop() -> bool:
    # A function of its own: what is raised while the RuntimeError is handled would be shown beneath it.
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
