"""Waiting for a condition with a deadline: the one place of the test tree where time is allowed to pass.

A test that sleeps is either too slow or wrong on a slow machine. It waits for what it wants to see instead, and says
what that is, so that a failure reads as a sentence.
"""

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

SECONDS = 10.0
EVERY = 0.01


class NotSeenError(AssertionError):
    """What a test waited for did not happen in time."""


@overload
async def until(
    condition: Callable[[], Awaitable[T]], timeout: float = ..., message: str = ..., every: float = ...
) -> T: ...


@overload
async def until(condition: Callable[[], T], timeout: float = ..., message: str = ..., every: float = ...) -> T: ...


async def until(condition: Callable[[], Any], timeout: float = SECONDS, message: str = "", every: float = EVERY) -> Any:
    """Return the condition's first true answer; the condition may be a coroutine function; times in seconds.

    Raises NotSeenError, with the message and the last answer, when the deadline has passed.
    """
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        value = await answer if inspect.isawaitable(answer) else answer
        if value:
            return value
        if time.monotonic() > deadline:
            raise NotSeenError(_sentence(condition, timeout, message, value))
        await asyncio.sleep(every)


def wait_until(condition: Callable[[], T], timeout: float = SECONDS, message: str = "", every: float = EVERY) -> T:
    """Return the condition's first true answer, blocking meanwhile; times in seconds.

    Raises NotSeenError, with the message and the last answer, when the deadline has passed.
    """
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise NotSeenError(_sentence(condition, timeout, message, answer))
        pause.wait(every)
    return answer


async def work_for(seconds: float) -> None:
    """Be a handler whose work takes this long; never a way to wait for something."""
    await asyncio.sleep(seconds)


def block_for(seconds: float) -> None:
    """Be a plain `def` handler whose work takes this long, blocking its thread."""
    threading.Event().wait(seconds)


def _sentence(condition: object, timeout: float, message: str, answer: object) -> str:
    what = message or getattr(condition, "__qualname__", repr(condition))
    return f"waited {timeout:g} s in vain: {what} (last answer: {answer!r})"
