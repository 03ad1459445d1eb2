"""Running `async def` tests: one event loop per test, and no task may outlive its test.

A plugin would do the first, not the second. A task that is left over is a service without an owner, so it fails the
test that left it.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

GRACE_SECONDS = 1.0


class TaskLeftError(AssertionError):
    """A test ended while a task of its own went on."""


def run_test(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run one test to its end.

    Raises TaskLeftError if tasks are left that do not end by themselves within a second.
    """
    asyncio.run(_run(coroutine))


async def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    await coroutine
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=GRACE_SECONDS)
    if left:
        raise TaskLeftError("tasks left running: " + ", ".join(sorted(repr(task) for task in left)))
