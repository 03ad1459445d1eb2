"""Real worker processes for scenarios: started, stopped, continued, killed; their logs and metrics read.

A worker runs `python -m headrace worker MODULE:ATTRIBUTE` with an app of `support/apps`. Nothing of a fleet outlives
its block.
"""

import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.commands import environment
from support.waiting import wait_until

TESTS = Path(__file__).parent.parent
_PORT = re.compile(r"probes? .*?:(\d+)|\"port\": ?(\d+)|port=(\d+)")


@dataclass(slots=True)
class WorkerProcess:
    """One worker process."""

    name: str
    popen: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.popen.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.popen.poll() is None

    @property
    def started(self) -> bool:
        """Whether it has said that it works; only at log level info."""
        return "worker started" in self.text()

    def kill(self) -> None:
        """Kill it at once (SIGKILL) and wait until it is gone."""
        self.popen.kill()
        self.popen.wait()

    def freeze(self) -> None:
        """Stop it as a stalled machine would (SIGSTOP)."""
        self.popen.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on (SIGCONT)."""
        self.popen.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Ask it to drain (SIGTERM)."""
        self.popen.send_signal(signal.SIGTERM)

    def wait(self, timeout: float = 60.0) -> int:
        """Wait for its end and return its exit code; fails with its log when it does not end."""
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"worker {self.name} has not ended in {timeout:g} s:\n{self.text()[-4000:]}") from None

    def text(self) -> str:
        """Everything that it printed so far."""
        return self.log.read_text(errors="replace")

    def metrics(self) -> str:
        """Return its metrics page; waits until it says its port."""
        port = wait_until(self._port, 20.0, f"worker {self.name} says the port of its probes")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            return str(page.read().decode())

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of a metric that carry these labels."""
        total = 0.0
        for line in self.metrics().splitlines():
            if not line.startswith(name) or line[len(name)] not in "{ ":
                continue
            if all(f'{key}="{value}"' in line for key, value in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def _port(self) -> int | None:
        found = _PORT.search(self.text())
        return int(next(g for g in found.groups() if g)) if found else None


@dataclass(slots=True)
class Fleet:
    """Workers on one database."""

    dsn: str
    folder: Path
    workers: list[WorkerProcess] = field(default_factory=list)

    def start(
        self, app: str, *arguments: str, name: str = "", variables: Mapping[str, str] | None = None
    ) -> WorkerProcess:
        """Start a worker of `support.apps.APP` (`module:attribute`), with more arguments and HEADRACE_ variables."""
        name = name or f"w{len(self.workers) + 1}"
        log = self.folder / f"{name}.{len(self.workers)}.log"
        own = {"metrics_port": "0", **(variables or {})}
        env = environment(self.dsn, **own) | {"PYTHONPATH": str(TESTS), "PYTHONUNBUFFERED": "1"}
        with log.open("wb") as out:
            popen = subprocess.Popen(
                [sys.executable, "-m", "headrace", "worker", f"support.apps.{app}", *arguments],
                env=env,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
            )
        worker = WorkerProcess(name, popen, log)
        self.workers.append(worker)
        return worker

    def end(self) -> None:
        """Kill whatever still runs."""
        for worker in self.workers:
            if worker.running:
                worker.thaw()
                worker.kill()


@contextmanager
def fleet(dsn: str) -> Iterator[Fleet]:
    """Yield a fleet; at the end all of it is killed, and its logs are shown when the block failed."""
    with tempfile.TemporaryDirectory(prefix="headrace-fleet-") as folder:
        workers = Fleet(dsn, Path(folder))
        try:
            yield workers
        except BaseException:
            for worker in workers.workers:
                sys.stderr.write(f"--- {worker.name} (pid {worker.pid})\n{worker.text()[-3000:]}\n")
            raise
        finally:
            workers.end()
