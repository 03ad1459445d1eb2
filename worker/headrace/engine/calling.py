"""Calling user code: on the loop or in a thread, never longer than its time-out.

A plain ``def`` handler runs in a thread and gets a connection of the same names that blocks. A
thread cannot be cancelled: when its time is over it is cut off from the transaction instead.
"""

import asyncio
import contextvars
from collections.abc import Coroutine, Generator, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

from headrace.domain.errors import HandlerTimeout
from headrace.ports.connection import Connection
from headrace.ports.subscribers import BoundHandler, HandlerValues


class BlockingConnection:
    """The connection of a handler that runs in a thread: the same statements, waited for."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        """Wrap the loop's connection."""
        self._connection = connection
        self._loop = loop
        self._cut_off = False

    def cut_off(self) -> None:
        """Refuse everything from now on: the transaction belongs to somebody else."""
        self._cut_off = True

    def _wait(self, work: Any) -> Any:
        if self._cut_off:
            work.close()
            raise HandlerTimeout("this handler's time is over and its transaction is gone; declare a longer timeout=")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def execute(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        """Run a statement and return its tag."""
        return self._wait(self._connection.execute(query, *args, timeout=timeout))

    def executemany(self, command: str, args: Iterable[Sequence[Any]], *, timeout: float | None = None) -> Any:
        """Run one statement for each sequence of arguments."""
        return self._wait(self._connection.executemany(command, args, timeout=timeout))

    def fetch(self, query: str, *args: Any, timeout: float | None = None, record_class: type[Any] | None = None) -> Any:
        """Run a query and return its rows."""
        return self._wait(self._connection.fetch(query, *args, timeout=timeout, record_class=record_class))

    def fetchrow(
        self, query: str, *args: Any, timeout: float | None = None, record_class: type[Any] | None = None
    ) -> Any:
        """Run a query and return its first row."""
        return self._wait(self._connection.fetchrow(query, *args, timeout=timeout, record_class=record_class))

    def fetchval(self, query: str, *args: Any, column: int | str = 0, timeout: float | None = None) -> Any:
        """Run a query and return one value."""
        return self._wait(self._connection.fetchval(query, *args, column=column, timeout=timeout))

    def defer(self, query: str, *args: Any) -> None:
        """Queue a statement; sent with the next other one or at the flush."""
        if self._cut_off:
            raise HandlerTimeout("this handler's time is over and its transaction is gone; declare a longer timeout=")
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
            HandlerTimeout: it took longer; whatever the handler raises passes unchanged.

        """
        work = handler.call(values) if handler.is_async else self._in_thread(handler, values)
        if isinstance(work, Coroutine):
            try:
                # Up to its first wait here and now: most handlers only defer, and need no timer then.
                waiting = work.send(None)
            except StopIteration:
                return
            work = _Resumed(work, waiting)
        bound = asyncio.timeout(timeout)
        try:
            async with bound:
                await work
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise HandlerTimeout(
                f"{handler.name} took longer than {timeout:g} s; declare timeout= on the subscriber if it needs more"
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
