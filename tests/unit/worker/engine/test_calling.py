"""Calling user code: on the loop, in a thread, within its time."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.domain.errors import HandlerTimeout
from headrace.engine.calling import Caller
from headrace.ports.subscribers import HandlerValues
from headrace.testing.connection import RecordedConnection
from support.stubs import StubHandler


@asynccontextmanager
async def caller() -> AsyncIterator[Caller]:
    """A caller with a thread."""
    with ThreadPoolExecutor(2) as threads:
        yield Caller(threads)


async def test_a_handler_that_never_waits_is_done_at_once() -> None:
    """No turn of the loop and no timer for a handler that only computes or defers."""
    seen: list[str] = []

    async def handle(values: HandlerValues) -> None:
        seen.append("handled")

    async with caller() as calls:
        asyncio.get_running_loop().call_soon(seen.append, "the loop turned")
        await calls.call(StubHandler(handle), HandlerValues(), 1.0)

    assert seen == ["handled"]


async def test_a_handler_may_wait_again_and_again() -> None:
    """What it awaits reaches it, results and errors alike."""
    seen: list[Any] = []

    async def failing() -> None:
        await asyncio.sleep(0)
        raise ValueError("from what was awaited")

    async def handle(values: HandlerValues) -> None:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, 7)
        seen.append(await future)
        try:
            await failing()
        except ValueError as error:
            seen.append(str(error))
        await asyncio.sleep(0)
        seen.append("end")

    async with caller() as calls:
        await calls.call(StubHandler(handle), HandlerValues(), 5.0)

    assert seen == [7, "from what was awaited", "end"]


@pytest.mark.parametrize("waits", [False, True])
async def test_errors_of_a_handler_pass_unchanged(waits: bool) -> None:
    """Before its first wait or after it."""

    async def handle(values: HandlerValues) -> None:
        if waits:
            await asyncio.sleep(0)
        raise LookupError("mine")

    async with caller() as calls:
        with pytest.raises(LookupError, match="mine"):
            await calls.call(StubHandler(handle), HandlerValues(), 5.0)


async def test_a_handler_that_takes_too_long_is_cancelled_and_named() -> None:
    """The error says which handler, how long, and what to declare."""
    cancelled = asyncio.Event()

    async def handle(values: HandlerValues) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with caller() as calls:
        with pytest.raises(HandlerTimeout, match=r"Slow\.one took longer than 0\.05 s.*timeout="):
            await calls.call(StubHandler(handle, name="Slow.one"), HandlerValues(), 0.05)

    assert cancelled.is_set()


async def test_the_handlers_own_time_out_is_its_own_error() -> None:
    """A TimeoutError that the handler raises is not taken for ours."""

    async def handle(values: HandlerValues) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    async with caller() as calls:
        with pytest.raises(TimeoutError) as caught:
            await calls.call(StubHandler(handle), HandlerValues(), 5.0)

    assert not isinstance(caught.value, HandlerTimeout)


async def test_cancelling_the_lane_cancels_the_handler() -> None:
    """A drain that has run out of patience ends the handler too."""
    waiting, ended = asyncio.Event(), asyncio.Event()

    async def handle(values: HandlerValues) -> None:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with caller() as calls:
        task = asyncio.create_task(calls.call(StubHandler(handle), HandlerValues(), 60.0))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert ended.is_set()


async def test_a_plain_handler_runs_in_a_thread_with_a_connection_that_blocks() -> None:
    """The same names, without await; deferred statements keep their place."""
    connection = RecordedConnection(lambda _: [])
    threads: list[str] = []

    def handle(values: HandlerValues) -> None:
        threads.append(threading.current_thread().name)
        db: Any = values.connection
        db.defer("insert one")
        db.execute("insert two", 2)

    async with caller() as calls:
        await calls.call(StubHandler(handle, is_async=False), HandlerValues(connection=connection), 5.0)

    assert threads != [threading.main_thread().name]
    assert [statement.query for statement in connection.sent] == ["insert one", "insert two"]


async def test_a_plain_handler_whose_time_is_over_is_cut_off() -> None:
    """A thread cannot be cancelled: it must not write into a transaction that is somebody else's by then."""
    connection = RecordedConnection(lambda _: [])
    may_go_on, ended = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def handle(values: HandlerValues) -> None:
        db: Any = values.connection
        may_go_on.wait(10)
        for call in (db.execute, db.defer):
            try:
                call("too late")
            except HandlerTimeout as error:
                errors.append(error)
        ended.set()

    async with caller() as calls:
        with pytest.raises(HandlerTimeout):
            await calls.call(StubHandler(handle, is_async=False), HandlerValues(connection=connection), 0.05)
        may_go_on.set()
        await asyncio.to_thread(ended.wait, 10)

    assert len(errors) == 2
    assert [statement.query for statement in connection.sent] == []
