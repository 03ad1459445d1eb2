"""The worker process: from settings to a drained end.

Probes come up first, so that whoever watches hears why it waits. A database that is down is waited for, at the start
as well as later; what is wrong with settings, code or schema ends the process with one message.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from headrace import __version__
from headrace.api.probes import ProbeServer
from headrace.domain.errors import HeadraceError, NotFinished, Unavailable
from headrace.engine.engine import Engine
from headrace.engine.results import RunResult
from headrace.ports.observer import Observer
from headrace.runtime.app import App
from headrace.runtime.compose import EngineOptions, open_engine
from headrace.runtime.operations import open_operations
from headrace.runtime.sampling import keep_sampling
from headrace.runtime.signals import Shutdown, signals_to
from headrace.runtime.system import SystemRandomness
from headrace.runtime.vitals import Vitals, longest_silence
from headrace.settings import Settings
from headrace.telemetry.fanout import Fanout
from headrace.telemetry.lines import LogObserver
from headrace.telemetry.logs import configure_logging, logger
from headrace.telemetry.metrics import Metrics
from headrace.telemetry.redaction import redacted

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 15.0

Loop = Callable[[], asyncio.AbstractEventLoop]


@dataclass(frozen=True, slots=True)
class Order:
    """What this worker shall do: run for ever, or until all is caught up, for at most ``timeout`` seconds."""

    until_caught_up: bool = False
    timeout: float | None = None


def run_worker(settings: Settings, app: App, order: Order) -> RunResult:
    """Be a worker process until SIGTERM or SIGINT, or until the order is done; returns after the drain.

    Raises:
        NotFinished: the order's time-out was reached with work left.
        UsageError: settings, code, schema or rights forbid it; the message names the fix.

    """
    configure_logging(settings.log_format, settings.log_level)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_run(settings, app, order))


def engine_options(settings: Settings) -> EngineOptions:
    """Return what the settings say of the engine."""
    return EngineOptions(
        lanes=settings.lanes,
        lease_seconds=settings.lease_seconds,
        handler_timeout=settings.handler_timeout_seconds,
        schema=settings.schema_name,
        names=settings.subscribers,
        groups=(settings.group,) if settings.group else (),
        start_from=settings.start_from,
        pooler=settings.pooler,
    )


async def _run(settings: Settings, app: App, order: Order) -> RunResult:
    stop = asyncio.Event()
    task = asyncio.current_task()
    shutdown = Shutdown(asyncio.get_running_loop(), stop, lambda: task and task.cancel())
    with signals_to(shutdown):
        return await Worker(settings, app, order).run(stop)


class Worker:
    """One worker, without the signals: ``run`` until ``stop`` is set."""

    def __init__(self, settings: Settings, app: App, order: Order) -> None:
        self._settings = settings
        self._app = app
        self._order = order
        self._options = engine_options(settings)
        self._dsn = settings.required_dsn()
        self._log = logger("headrace.worker")
        chosen = app.select(self._options.names or None, self._options.groups or None)
        self._names = tuple(bound.name for bound in chosen)
        self.metrics = Metrics()
        self._observer: Observer = Fanout([self.metrics, LogObserver()])
        timeouts = (bound.timeout or settings.handler_timeout_seconds for bound in chosen)
        self.vitals = Vitals(longest_silence(timeouts, settings.lease_seconds))

    async def run(self, stop: asyncio.Event) -> RunResult:
        """Work until ``stop`` is set or the order is done, then drain and return what was done."""
        self.metrics.introduce(self._names)
        async with AsyncExitStack() as stack:
            probes = ProbeServer(self._settings.metrics_port, self.vitals.health, self.metrics.render)
            stack.enter_context(probes)
            await stack.enter_async_context(_background(self.vitals.pulse(), "pulse"))
            sampling = keep_sampling(self._dsn, self._settings, self._names, self.metrics)
            await stack.enter_async_context(_background(sampling, "sampling"))
            self._log.info(
                "worker started",
                app=self._app.name,
                subscriptions=list(self._names),
                lanes=self._settings.lanes,
                port=probes.port,
                version=__version__,
            )
            result = await self._work(stop)
            self._log.info("worker ended", events=result.processed)
            return result

    async def _work(self, stop: asyncio.Event) -> RunResult:
        """Open the engine, however long the database takes to answer, and serve."""
        wait = FIRST_WAIT_SECONDS
        give_up_at = None if self._order.timeout is None else time.monotonic() + self._order.timeout
        while not stop.is_set():
            left = None if give_up_at is None else give_up_at - time.monotonic()
            if left is not None and left <= 0:
                raise NotFinished(
                    f"the database did not answer for {self._order.timeout:g} s: {self.vitals.waiting_for}"
                )
            try:
                async with open_engine(self._app, self._dsn, self._options, self._observer) as engine:
                    return await self._serve(engine, stop, left)
            except Unavailable as error:
                self.vitals.waiting_for = f"the database: {redacted(str(error))}"
                self._log.warning("the database does not answer", error=str(error), retry_in=round(wait, 1))
            finally:
                self.vitals.engine = None
            await _pause(stop, wait if left is None else min(wait, left))
            wait = min(wait * SystemRandomness().uniform(1.5, 2.0), LONGEST_WAIT_SECONDS)
        return RunResult(has_pending=self._order.until_caught_up)

    async def _serve(self, engine: Engine, stop: asyncio.Event, timeout: float | None) -> RunResult:
        self.vitals.engine = engine.health
        try:
            return await engine.serve(
                stop,
                setup=self._settings.setup == "auto",
                until_caught_up=self._order.until_caught_up,
                timeout=timeout,
            )
        except NotFinished as error:
            holder = await self._who_holds()
            raise NotFinished(f"{error}{f'; held by {holder}' if holder else ''}") from error

    async def _who_holds(self) -> str:
        """Return who keeps the line where it is, as far as that can be told now."""
        try:
            async with open_operations(self._settings) as operations:
                return str(await operations.who_holds(self._app.events) or "")
        except HeadraceError:
            return ""


@asynccontextmanager
async def _background(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Run a duty of the process beside a block; it ends with the block."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(ended, Exception):
            logger("headrace.worker").error("a duty of the process had ended", duty=name, error=repr(ended))


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


def _loop_factory() -> Loop | None:
    """Return uvloop's loop where it is installed (the `fast` extra)."""
    if find_spec("uvloop") is None:
        return None
    return cast("Loop", import_module("uvloop").new_event_loop)
