"""The paths /livez /readyz /startupz /metrics, served by a thread with a loop of its own.

Our own few lines rather than a web framework: four fixed answers to GET, one request per connection, every read
bounded in size and time. When too many clients hang on a connection, the one that has hung longest goes.
"""

import asyncio
import logging
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, Self

from headrace.domain.errors import UsageError

MAX_REQUEST_BYTES = 8 * 1024
READ_SECONDS = 5.0
WRITE_SECONDS = 10.0
MAX_CONNECTIONS = 100
START_SECONDS = 10.0
PLAIN = "text/plain; charset=utf-8"

_log = logging.getLogger("headrace.api")

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

Answer = tuple[int, bytes, str]


class Health(Protocol):
    """What the probes need to know; each look is one consistent snapshot."""

    @property
    def started(self) -> bool:
        """Whether start-up is over."""
        ...

    @property
    def alive(self) -> bool:
        """Whether a restart would not help."""
        ...

    @property
    def ready(self) -> bool:
        """Whether it works now."""
        ...

    @property
    def draining(self) -> bool:
        """Whether it is on its way out."""
        ...

    @property
    def reasons(self) -> tuple[str, ...]:
        """What is not well, in words without secrets."""
        ...


class ProbeServer:
    """Serves the probes until it is closed; a context manager.

    ``health`` and ``metrics`` are called on the server's thread and must be safe there and quick.
    """

    def __init__(
        self, port: int, health: Callable[[], Health], metrics: Callable[[], tuple[bytes, str]], host: str = ""
    ) -> None:
        self._wanted_port = port
        self._host = host
        self._health = health
        self._metrics = metrics
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="headrace-probes", daemon=True)
        self._listening = threading.Event()
        self._stop = asyncio.Event()
        self._open: OrderedDict[asyncio.Task[None], None] = OrderedDict()
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Listen on the wanted port, or with a warning on any free one; ``port`` says which.

        Raises:
            UsageError: no port at all can be had.

        """
        listener = self._bind()
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._thread.start()
        self._listening.wait(START_SECONDS)

    def close(self) -> None:
        """Stop listening and end the thread; safe to call twice, and before ``start``."""
        if self._thread.is_alive():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(START_SECONDS)
        elif not self._loop.is_closed():
            self._loop.close()

    def _bind(self) -> socket.socket:
        try:
            return _listener(self._host, self._wanted_port)
        except (OSError, OverflowError) as error:
            problem = error
        try:
            listener = _listener(self._host, 0)
        except OSError as error:
            raise UsageError(f"no port for probes and metrics can be opened: {error}") from error
        _log.warning(
            "port %d for probes and metrics cannot be had (%s): using %d instead; set HEADRACE_METRICS_PORT or "
            "--metrics-port to a free one, 0 for any",
            self._wanted_port,
            problem,
            listener.getsockname()[1],
        )
        return listener

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except Exception:  # noqa: BLE001 - a thread must not end without a word
            _log.exception("the server of probes and metrics has ended")
        finally:
            self._listening.set()
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, sock=self._listener, limit=MAX_REQUEST_BYTES)
        self._listening.set()
        await self._stop.wait()
        server.close()
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            if len(self._open) >= MAX_CONNECTIONS:
                self._open.popitem(last=False)[0].cancel()
            self._open[task] = None
        try:
            status, body, content_type = await self._answer(reader)
            await _send(writer, status, body, content_type)
        except (OSError, TimeoutError, asyncio.CancelledError):
            # The client is gone, too slow or one too many; there is nobody to tell.
            pass
        finally:
            if task is not None:
                self._open.pop(task, None)
            writer.transport.abort() if writer.is_closing() else writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> Answer:
        try:
            async with asyncio.timeout(READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return 431, b"the request is too long\n", PLAIN
        except TimeoutError:
            return 408, b"the request took too long\n", PLAIN
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                raise ConnectionResetError from None
            return 400, b"the request is not complete\n", PLAIN
        parts = head.split(b"\r\n", 1)[0].split(b" ")
        if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):  # noqa: PLR2004 - method, target, version
            return 400, b"this is not HTTP/1\n", PLAIN
        method, target = parts[0], parts[1].split(b"?", 1)[0]
        if method not in (b"GET", b"HEAD"):
            return 405, b"only GET is answered here\n", PLAIN
        status, body, content_type = self._page(target)
        return status, b"" if method == b"HEAD" else body, content_type

    def _page(self, target: bytes) -> Answer:
        try:
            if target == b"/metrics":
                return 200, *self._metrics()
            return _probe(target, self._health())
        except Exception:  # noqa: BLE001 - one bad answer is no reason to end
            _log.exception("a probe could not be answered")
            return 500, b"this could not be answered: see the log\n", PLAIN


def _probe(target: bytes, health: Health) -> Answer:
    match target:
        case b"/livez":
            return _verdict(health.alive, health, "alive")
        case b"/readyz":
            return _verdict(health.ready and not health.draining, health, "ready")
        case b"/startupz":
            return _verdict(health.started, health, "started")
        case _:
            return 404, b"here are /metrics /livez /readyz /startupz\n", PLAIN


def _verdict(good: bool, health: Health, word: str) -> Answer:
    reasons = (*(("draining",) if health.draining else ()), *health.reasons)
    said = "".join(f"- {reason}\n" for reason in reasons)
    return (200 if good else 503), f"{'' if good else 'not '}{word}\n{said}".encode(), PLAIN


async def _send(writer: asyncio.StreamWriter, status: int, body: bytes, content_type: str) -> None:
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode("ascii") + body)
    async with asyncio.timeout(WRITE_SECONDS):
        await writer.drain()
        writer.close()
        await writer.wait_closed()


def _listener(host: str, port: int) -> socket.socket:
    """Return a listening socket; without a host on all addresses, of both families where the system has both."""
    if not host and socket.has_dualstack_ipv6():
        with suppress(OSError):
            return _shared(socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True))
    return _shared(socket.create_server((host, port)))


def _shared(listener: socket.socket) -> socket.socket:
    listener.setblocking(False)
    return listener
