"""Calls that nobody has awaited are named; those that have begun or were given up are not."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from headrace.domain.errors import NotAllowed
from headrace.domain.unawaited import KEPT, Calls


async def answer() -> int:
    """Answer."""
    await asyncio.sleep(0)
    return 42


def called(calls: Calls, query: str = "insert") -> Coroutine[Any, Any, int]:
    """Make a call."""
    return calls.made("execute", query, answer())


async def test_a_forgotten_call_is_named_once() -> None:
    """The message has the method, the text in one line and cut, how many more there are, and what to do."""
    calls = Calls()
    _ = [called(calls, "insert into\n  orders values " + "x" * 100), called(calls)]
    with pytest.raises(
        NotAllowed, match=r"^execute\('insert into orders values x+…'\) .*never awaited \(and 1 more\).*"
    ):
        calls.require_awaited()
    calls.require_awaited()


async def test_calls_awaited_in_any_way_pass() -> None:
    """Directly, gathered, in a task, begun and still waiting, closed, or in a task cancelled before it began."""
    calls = Calls()
    assert await called(calls) == 42
    assert await asyncio.gather(*[called(calls), called(calls)]) == [42, 42]
    assert await asyncio.create_task(called(calls)) == 42
    called(calls).close()
    given_up = asyncio.create_task(called(calls))
    given_up.cancel()
    begun = asyncio.create_task(called(calls))
    await asyncio.sleep(0)
    calls.require_awaited()
    await begun


async def test_however_many_calls_the_forgotten_one_is_found() -> None:
    """What has begun is not kept for long, what has not begun is."""
    calls = Calls()
    _ = called(calls, "the forgotten one")
    for _ in range(3 * KEPT):
        await called(calls)
    assert len(calls._made) <= KEPT
    with pytest.raises(NotAllowed, match=r"the forgotten one.*awaited, so"):
        calls.require_awaited()
