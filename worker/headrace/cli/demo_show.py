"""Who shows the demonstration: a live screen on a terminal, plain lines where there is none."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live

from headrace.cli.demo_screen import INDENT, screen, story_line
from headrace.cli.output import console, print_lines, say, width_of
from headrace.cli.tables import folded
from headrace.runtime.demo.course import Show
from headrace.runtime.demo.figures import Figures, Mark, StoryLine

PLAIN_EVERY_SECONDS = 5.0


class PlainShow:
    """Prints each line of the story, and a line of figures every few seconds."""

    def __init__(self, *, stderr: bool) -> None:
        self._stderr = stderr
        self._said_at = 0.0

    def tell(self, line: StoryLine) -> None:
        """Print what has happened."""
        self._said_at = line.at
        say(story_line(line), stderr=self._stderr)

    def see(self, figures: Figures) -> None:
        """Print the figures, when nothing was printed for a while."""
        if figures.at - self._said_at < PLAIN_EVERY_SECONDS:
            return
        words = (
            f"{figures.rate:,.0f} events/s, unrouted {figures.unrouted:,}, inbox {figures.inbox:,}, "
            f"handled {figures.handled:,}"
        )
        self.tell(StoryLine(figures.at, Mark.STEP, words))


class LiveShow:
    """Redraws one screen; what it draws is what was seen last, in the size that the terminal has now."""

    def __init__(self, out: Console) -> None:
        self._live = Live(self, console=out, screen=True, auto_refresh=False, redirect_stdout=False)
        self._figures: Figures | None = None
        self.story: list[StoryLine] = []

    def tell(self, line: StoryLine) -> None:
        """Add a line to the story."""
        self.story.append(line)
        self._live.refresh()

    def see(self, figures: Figures) -> None:
        """Draw the figures."""
        self._figures = figures
        self._live.refresh()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold the screen for the time of a block, and give it back as it was."""
        with self._live:
            yield

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the screen in the size of this moment."""
        if self._figures is None:
            yield from (story_line(line) for line in self.story)
        else:
            yield screen(self._figures, self.story, options.max_width, options.size.height)


@contextmanager
def show_on(*, stderr: bool, live: bool | None) -> Iterator[Show]:
    """Yield who shows: live on a terminal that can, unless NO_COLOR or ``live`` says otherwise.

    After a live screen the story is printed, so that it can be read again.
    """
    out = console(stderr=stderr)
    can = out.is_terminal and not out.is_dumb_terminal
    wanted = "NO_COLOR" not in os.environ if live is None else live
    if not (can and wanted):
        yield PlainShow(stderr=stderr)
        return
    shown = LiveShow(out)
    try:
        with shown.running():
            yield shown
    finally:
        for line in shown.story:
            print_lines(folded(story_line(line), width_of(out), " " * INDENT), out)
