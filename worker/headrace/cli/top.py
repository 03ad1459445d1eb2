"""`headrace top`: the status, again and again, until somebody has seen enough.

On a terminal a screen of its own, which is given back as it was; in a pipe one table after the other, for a script one
JSON document a line. It only looks: a database that goes away is said on the screen and looked for again.
"""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live

from headrace.cli.board import screen_lines, status_lines
from headrace.cli.ending import ExitCode
from headrace.cli.execution import run
from headrace.cli.looks import Look, look, look_json
from headrace.cli.options import (
    DsnOption,
    NamesArgument,
    OutputOption,
    SchemaOption,
    settings_with,
    with_standard_input,
)
from headrace.cli.output import OutputForm, console, print_json, print_lines, say, warn, width_of
from headrace.domain.errors import Unavailable
from headrace.runtime.operations import open_operations
from headrace.settings import Settings

ENDS = {"q", "Q", "\x03", "\x1c"}
"""Keys that end it; the last two are Ctrl-C and Ctrl-\\, which a screen of its own takes as keys."""
STEPS = {"\x1b[A": -1, "k": -1, "\x1b[B": 1, "j": 1, "\x1b[5~": -10, "\x1b[6~": 10, " ": 10}
SHORTEST_SECONDS = 0.1


@dataclass(slots=True)
class View:
    """What the screen shows now, and what a key or a new size asked of it."""

    size: Callable[[], tuple[int, int]]
    seen: Look | None = None
    rates: dict[str, float] = field(default_factory=dict)
    news: str | None = None
    scrolled: int = 0
    ended: bool = False
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, seen: Look) -> None:
        """Show a new look; how fast events are handled is told by the one before."""
        if self.seen is not None:
            self.rates = rates_between(self.seen, seen)
        self.seen, self.news = seen, None

    def press(self, key: str) -> None:
        """Do what a key asks for."""
        self.ended = self.ended or key in ENDS
        self.scrolled += STEPS.get(key, 0)
        self.asked.set()

    def drawn(self) -> Group:
        """Return the screen as it is now."""
        if self.seen is None:
            return Group()
        lines, self.scrolled = screen_lines(self.seen, self.size(), self.rates, self.news, self.scrolled)
        return Group(*lines)


def top_command(
    names: NamesArgument = None,
    every: Annotated[
        float, typer.Option("--every", min=SHORTEST_SECONDS, metavar="SECONDS", help="How often it looks.")
    ] = 1.0,
    times: Annotated[
        int | None,
        typer.Option("--times", min=1, help="End after so many looks; default: not by itself.", show_default=False),
    ] = None,
    dsn: DsnOption = None,
    schema: SchemaOption = None,
    output: OutputOption = OutputForm.TEXT,
) -> None:
    """Show the status live, until q or Ctrl-C; a plain table each time when piped.

    With --output json it prints one document a line, in the form of headrace status.
    """
    settings = settings_with(dsn=dsn, schema_name=schema)
    raise typer.Exit(run(_top(settings, with_standard_input(names), every, times, output)))


def rates_between(before: Look, after: Look) -> dict[str, float]:
    """Return how many events each subscription handled in a second between two looks."""
    seconds = max((after.at - before.at).total_seconds(), 0.001)
    handled = {standing.subscription: standing.processed_total for standing in before.standings}
    return {
        s.subscription: max(s.processed_total - handled.get(s.subscription, s.processed_total), 0) / seconds
        for s in after.standings
    }


async def _top(
    settings: Settings, names: list[str] | None, every: float, times: int | None, output: OutputForm
) -> ExitCode:
    out = console()
    live = output is OutputForm.TEXT and out.is_terminal and not out.is_dumb_terminal
    async with open_operations(settings) as operations:

        async def take() -> Look:
            return await look(operations, names)

        if live:
            await _on_screen(out, take, every, times)
        else:
            await _in_lines(out, take, every, times, output)
    return ExitCode.DONE


async def _in_lines(
    out: Console, take: Callable[[], Awaitable[Look]], every: float, times: int | None, output: OutputForm
) -> None:
    before: Look | None = None
    async for seen in _looks(take, times, lambda problem: warn(f"trying again: {problem}"), _rest(every)):
        if output is OutputForm.JSON:
            print_json(look_json(seen), one_line=True)
        else:
            say(f"{seen.at:%H:%M:%S}")
            rates = None if before is None else rates_between(before, seen)
            print_lines(status_lines(seen, width_of(out), rates), out)
        sys.stdout.flush()
        before = seen


async def _on_screen(out: Console, take: Callable[[], Awaitable[Look]], every: float, times: int | None) -> None:
    view = View(lambda: (out.width, out.height))
    # The first look is taken before the screen is: a database that is not there is an error, not a screen.
    view.take(await take())
    left = None if times is None else times - 1
    with _listening(view), Live(view.drawn(), console=out, screen=True, auto_refresh=False) as screen:

        def tell(problem: Unavailable) -> None:
            view.news = f"trying again: {problem}"
            screen.update(view.drawn(), refresh=True)

        async def rest() -> bool:
            return await _rest_watching(view, screen, every)

        if left == 0 or not await rest():
            return
        async for seen in _looks(take, left, tell, rest):
            view.take(seen)
            screen.update(view.drawn(), refresh=True)


async def _looks(
    take: Callable[[], Awaitable[Look]],
    times: int | None,
    tell: Callable[[Unavailable], None],
    rest: Callable[[], Awaitable[bool]],
) -> AsyncIterator[Look]:
    """Yield looks until there were so many or ``rest`` says that it is over; the first must succeed."""
    done = 0
    while times is None or done < times:
        try:
            seen = await take()
        except Unavailable as error:
            tell(error)
        else:
            yield seen
            done += 1
            if done == times:
                return
        if not await rest():
            return


def _rest(seconds: float) -> Callable[[], Awaitable[bool]]:
    async def rest() -> bool:
        await asyncio.sleep(seconds)
        return True

    return rest


async def _rest_watching(view: View, screen: Live, seconds: float) -> bool:
    """Draw anew on every key and every change of size, until it is time to look again; False: somebody ended it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not view.ended:
                await view.asked.wait()
                view.asked.clear()
                screen.update(view.drawn(), refresh=True)
    return not view.ended


@contextmanager
def _listening(view: View) -> Iterator[None]:
    """Hand keys and changes of size to a view; the terminal is as it was afterwards."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, view.asked.set)
    try:
        with _keys(view, loop):
            yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


@contextmanager
def _keys(view: View, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    if not sys.stdin.isatty():
        yield
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)

    def read() -> None:
        typed = os.read(keyboard, 64).decode("utf-8", "replace")
        # Nothing at all is read when the terminal is gone.
        for key in [typed] if typed in STEPS else typed or "q":
            view.press(key)

    try:
        tty.setcbreak(keyboard)
        now = termios.tcgetattr(keyboard)
        # Ctrl-C is a key here, so that it ends well; Ctrl-Z would leave a shell with half a screen.
        now[3] &= ~termios.ISIG
        termios.tcsetattr(keyboard, termios.TCSADRAIN, now)
        loop.add_reader(keyboard, read)
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
