"""How far long work is, for whoever watches a terminal; nothing at all where nobody does.

It is drawn on standard error and gone at the end, so results stay clean. What is told while it runs is printed above.
"""

import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.cli.output import BUSY, QUIET, console, shown
from headrace.domain.engine_events import EngineEvent, Flushed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

Step = Callable[[int], None]
"""Takes how much is done now, in all."""


class CurrentStderr(io.TextIOBase):
    """Standard error as it is at each moment: while progress is drawn, lines go above it."""

    def write(self, text: str, /) -> int:
        """Write a text."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Write out what is waiting."""
        sys.stderr.flush()

    def isatty(self) -> bool:
        """Tell whether somebody may be looking."""
        return sys.stderr.isatty()


class Flushes:
    """An observer that counts what was flushed, and hands the sum to whoever draws it."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._events = 0

    def notice(self, event: EngineEvent) -> None:
        """Take one fact."""
        if isinstance(event, Flushed):
            self._events += event.events
            self._step(self._events)


def watched() -> "Console | None":
    """Return the console that progress is drawn on; None where standard error is no terminal, or too simple a one."""
    out = console(stderr=True)
    return out if out.is_terminal and not out.is_dumb_terminal else None


@contextmanager
def counted(what: str, total: int | None, out: "Console | None") -> Iterator[Step]:
    """Show how many events are done, how fast, and how long the rest takes where ``total`` is known."""
    if out is None:
        yield lambda _: None
        return
    with bar(out) as progress:
        task = progress.add_task(what, total=total, events=0, rate=0)
        started = time.monotonic()

        def step(done: int) -> None:
            rate = int(done / max(time.monotonic() - started, 0.001))
            # More than was there at the start has come in: a bar that is full goes on.
            progress.update(task, completed=done, total=total and max(total, done), events=done, rate=rate)

        yield step


def bar(out: "Console") -> "Progress":
    """Return a bar with events, their rate and the time left; a task has the fields ``events`` and ``rate``."""
    # Nobody looks at a bar in a pipe, so it is loaded for a terminal only.
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None, style=QUIET, complete_style=BUSY, finished_style=BUSY, pulse_style=BUSY),
        TextColumn("{task.fields[events]:,} events  {task.fields[rate]:,}/s", markup=False),
        TimeRemainingColumn(),
        console=out,
        transient=True,
        expand=True,
    )


@contextmanager
def named_steps(out: "Console | None") -> Iterator[Callable[[str], None]]:
    """Show the name of the step that is being taken."""
    if out is None:
        yield lambda _: None
        return
    from rich.live import Live  # noqa: PLC0415 - nobody looks at it in a pipe
    from rich.spinner import Spinner  # noqa: PLC0415

    with Live(Spinner("dots", style=BUSY), console=out, transient=True, refresh_per_second=10) as live:
        yield lambda name: live.update(Spinner("dots", f"{shown(name, 200)} …", style=BUSY), refresh=True)
