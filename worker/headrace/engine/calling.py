"""Calling user code: on the loop or in a thread, never longer than its time-out.

A plain ``def`` handler runs in a thread and gets a connection of the same names that blocks. A
thread cannot be cancelled: when its time is over it is cut off from the transaction instead.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from concurrent.futures import CancelledError, Executor
from functools import partial
from typing import Any

from headrace.domain.errors import HandlerTimeout
from headrace.ports.connection import Connection
from headrace.ports.subscribers import BoundHandler, HandlerValues

_TOO_LATE = "this handler's time is over and its transaction is gone; declare a longer timeout="


class BlockingConnection:
    """The connection of a handler that runs in a thread: the same statements, waited for."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        """Wrap the loop's connection."""
        self._connection = connection
        self._loop = loop
        self._lock = threading.Lock()
        self._cut_off = False
        self._running: asyncio.Task[Any] | None = None

    def cut_off(self) -> None:
        """Refuse everything from now on, and cancel what runs: the transaction belongs to somebody else.

        To be called on the loop.
        """
        with self._lock:
            self._cut_off = True
        if self._running is not None:
            self._running.cancel()

    def _wait(self, method: Callable[..., Coroutine[Any, Any, Any]], *args: Any, **options: Any) -> Any:
        # Looked at here, where it costs nothing, and under the lock: after the cut nothing waits for the loop any more.
        with self._lock:
            if self._cut_off:
                raise HandlerTimeout(_TOO_LATE)
            running = asyncio.run_coroutine_threadsafe(self._run(method, args, options), self._loop)
        try:
            return running.result()
        except CancelledError:
            raise HandlerTimeout(_TOO_LATE) from None

    async def _run(
        self, method: Callable[..., Coroutine[Any, Any, Any]], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        # Again on the loop, where the cut is made: no statement slips in between.
        if self._cut_off:
            raise HandlerTimeout(_TOO_LATE)
        self._running = asyncio.current_task()
        try:
            # Called here, not in the thread: a call that is made counts as one to be awaited.
            return await method(*args, **options)
        finally:
            self._running = None

    def execute(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        """Run a statement and return its tag."""
        return self._wait(self._connection.execute, query, *args, timeout=timeout)

    def executemany(self, command: str, args: Iterable[Sequence[Any]], *, timeout: float | None = None) -> Any:
        """Run one statement for each sequence of arguments."""
        return self._wait(self._connection.executemany, command, args, timeout=timeout)

    def fetch(self, query: str, *args: Any, timeout: float | None = None, record_class: type[Any] | None = None) -> Any:
        """Run a query and return its rows."""
        return self._wait(self._connection.fetch, query, *args, timeout=timeout, record_class=record_class)

    def fetchrow(
        self, query: str, *args: Any, timeout: float | None = None, record_class: type[Any] | None = None
    ) -> Any:
        """Run a query and return its first row."""
        return self._wait(self._connection.fetchrow, query, *args, timeout=timeout, record_class=record_class)

    def fetchval(self, query: str, *args: Any, column: int | str = 0, timeout: float | None = None) -> Any:
        """Run a query and return one value."""
        return self._wait(self._connection.fetchval, query, *args, column=column, timeout=timeout)

    def defer(self, query: str, *args: Any) -> None:
        """Queue a statement; sent with the next other one or at the flush."""
        with self._lock:
            if self._cut_off:
                raise HandlerTimeout(_TOO_LATE)
            self._connection.defer(query, *args)


class _Resumed:
    """The rest of a coroutine that was run up to its first wait."""

    __slots__ = ("_coroutine", "_waiting")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waiting: Any) -> None:
        self._coroutine = coroutine
        self._waiting = waiting

    def __await__(self) -> Generator[Any, Any, Any]:
        waiting = self._waiting
        while True:
            try:
                sent = yield waiting
            except BaseException as error:  # noqa: BLE001 - passed on to where it belongs
                resume = partial(self._coroutine.throw, error)
            else:
                resume = partial(self._coroutine.send, sent)
            try:
                waiting = resume()
            except StopIteration as end:
                return end.value


class Caller:
    """Calls bound handlers."""

    def __init__(self, executor: Executor) -> None:
        """Take the thread pool for plain functions."""
        self._executor = executor

    async def call(self, handler: BoundHandler, values: HandlerValues, timeout: float) -> None:
        """Call a handler and wait for it, at most ``timeout`` seconds.

        Raises:
            HandlerTimeout: it took longer.
            RuntimeError: it was cancelled, and not by whoever calls it.
            Whatever else the handler raises passes unchanged.

        """
        bound = asyncio.timeout(timeout)
        try:
            work = handler.call(values) if handler.is_async else self._in_thread(handler, values)
            if isinstance(work, Coroutine):
                try:
                    # Up to its first wait here and now: most handlers only defer, and need no timer then.
                    waiting = work.send(None)
                except StopIteration:
                    return
                work = _Resumed(work, waiting)
            async with bound:
                await work
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise HandlerTimeout(
                f"{handler.name} took longer than {timeout:g} s; declare timeout= on the subscriber if it needs more"
            ) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Let through, it would end the lane that it was raised in.
            raise RuntimeError(
                f"{handler.name} was cancelled from within: it raised CancelledError, or waited for a task that was "
                "cancelled"
            ) from error

    async def _in_thread(self, handler: BoundHandler, values: HandlerValues) -> None:
        loop = asyncio.get_running_loop()
        blocking = None
        if values.connection is not None:
            blocking = BlockingConnection(values.connection, loop)
            values.connection = blocking
        context = contextvars.copy_context()
        try:
            await loop.run_in_executor(self._executor, context.run, handler.call, values)
        except asyncio.CancelledError:
            if blocking is not None:
                blocking.cut_off()
            raise
