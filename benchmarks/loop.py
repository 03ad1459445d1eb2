"""The event loop of every contender: the one that a worker process would take."""

import asyncio
from collections.abc import Coroutine
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, on uvloop where the `fast` extra is installed."""
    factory = None if find_spec("uvloop") is None else import_module("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)
