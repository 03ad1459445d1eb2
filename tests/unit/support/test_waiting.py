"""The waiting helpers stop at the first true answer, and say what they waited for when there is none."""

import asyncio

import pytest

from support.waiting import NotSeenError, until, wait_until


def test_wait_until_returns_the_first_true_answer() -> None:
    """The condition is asked again until it is true, and its answer comes back."""
    answers = iter([0, "", None, 7, 8])

    assert wait_until(lambda: next(answers), every=0.001) == 7


async def test_until_takes_plain_and_coroutine_conditions() -> None:
    """A condition may be a function or a coroutine function."""

    async def three() -> int:
        return 3

    assert await until(lambda: 2) == 2
    assert await until(three) == 3


async def test_until_lets_the_loop_run() -> None:
    """What is waited for may be done by another task of the same loop."""
    done: list[int] = []

    async def work() -> None:
        done.append(1)

    task = asyncio.create_task(work())

    await until(lambda: done)
    await task


async def test_a_deadline_is_an_assertion_that_reads_as_a_sentence() -> None:
    """After the deadline the message says what was waited for, how long, and the last answer."""
    with pytest.raises(NotSeenError, match=r"waited 0\.02 s in vain: the mill turns \(last answer: \[\]\)"):
        await until(list, timeout=0.02, message="the mill turns")
    with pytest.raises(AssertionError, match="the mill turns"):
        wait_until(list, timeout=0.02, message="the mill turns")


def test_an_error_of_the_condition_comes_through_at_once() -> None:
    """A condition that raises is not asked again."""
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 / 0)
