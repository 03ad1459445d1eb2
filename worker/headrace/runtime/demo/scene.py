"""The course of the demonstration, and its end: whatever happens, no process, folder or port is left.

The workers are processes of their own, started as a person would start them, in a session of their own so that Ctrl-C
reaches this process alone, which ends them.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from headrace.domain.errors import HeadraceError
from headrace.embedded.cluster import Cluster
from headrace.embedded.programs import find_programs
from headrace.runtime.demo.shop import shop_log
from headrace.runtime.demo.subscribers import MAILBOX
from headrace.runtime.demo.verdict import Verdict, judge
from headrace.runtime.importing import Imported, import_file
from headrace.store.events import PostgresEvents
from headrace.store.migrate import migrate
from headrace.store.pool import Database

APP = "headrace.runtime.demo.subscribers:app"
WORKERS_SECONDS = 900.0
POLL_SECONDS = 0.2
STOP_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Script:
    """How large the demonstration is."""

    events: int = 100_000
    seed: int = 1
    workers: int = 2


class Stage:
    """The running demonstration: a database, and workers on it."""

    def __init__(self, dsn: str, folder: Path) -> None:
        """Take the database and a folder for what is written."""
        self.dsn = dsn
        self.mailbox = folder / "mailbox"
        self.mailbox.mkdir()
        self._logs = folder
        self._workers: list[subprocess.Popen[bytes]] = []

    async def fill(self, script: Script, on_chunk: Callable[[Imported], None]) -> Imported:
        """Create the schema, make the shop's log up and import it."""
        await migrate(self.dsn)
        path = self._logs / "shop.jsonl"
        with path.open("wb") as file:
            file.writelines(shop_log(script.events, script.seed))
        async with await Database.open(self.dsn, max_size=1, application_name="headrace demo") as database:
            with path.open("rb") as file:
                return await import_file(file, await PostgresEvents.open(database), on_chunk)

    def start_workers(self, number: int) -> list[int]:
        """Start worker processes that end when everything is caught up; return their process ids."""
        for place in range(number):
            with (self._logs / f"worker-{place + 1}.log").open("wb") as log:
                self._workers.append(self._start(log))
        return [worker.pid for worker in self._workers]

    def _start(self, log: IO[bytes]) -> "subprocess.Popen[bytes]":
        own = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        order = ("--until-caught-up", "--timeout", f"{WORKERS_SECONDS:g}", "--metrics-port", "0")
        return subprocess.Popen(  # noqa: S603 - this very interpreter and program
            (sys.executable, "-m", "headrace", "worker", APP, *order),
            env=own | {"HEADRACE_DSN": self.dsn, MAILBOX: str(self.mailbox)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    async def wait_for_workers(self, on_poll: Callable[[], None]) -> None:
        """Return when all workers have ended well.

        Raises:
            HeadraceError: one of them ended with an error; the message has the end of its log.

        """
        while any(worker.poll() is None for worker in self._workers):
            on_poll()
            await asyncio.sleep(POLL_SECONDS)
        for place, worker in enumerate(self._workers):
            if worker.returncode != 0:
                said = (self._logs / f"worker-{place + 1}.log").read_text("utf-8", "replace")[-3000:]
                raise HeadraceError(f"worker {place + 1} ended with exit code {worker.returncode}:\n{said}")

    async def judge(self) -> list[Verdict]:
        """Return the verdict on each subscriber."""
        return await judge(self.dsn, self.mailbox)

    def end(self) -> None:
        """End what still runs."""
        running = [worker for worker in self._workers if worker.poll() is None]
        for worker in running:
            worker.send_signal(signal.SIGKILL)
        for worker in running:
            worker.wait(STOP_SECONDS)


@contextmanager
def stage() -> Iterator[tuple[Cluster, Stage]]:
    """Yield a PostgreSQL of our own and the stage on it; afterwards nothing of both is left.

    Raises:
        UsageError: there is no PostgreSQL; the message says what to install.

    """
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(find_programs("embedded")))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-demo-")))
        made = Stage(cluster.dsn(), folder)
        stack.callback(made.end)
        yield cluster, made
