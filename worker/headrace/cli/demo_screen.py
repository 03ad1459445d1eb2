"""The screen of `headrace demo`: figures and a story in, something to draw out, for any size of terminal.

Pure: no clock, no database, no terminal. It must never be taller or wider than it was told, and every text that comes
from a log is made printable first.
"""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headrace.cli.output import duration, shown
from headrace.cli.tables import folded
from headrace.runtime.demo.figures import (
    Condition,
    FailingKey,
    Figures,
    Mark,
    StoryLine,
    SubscriptionFigures,
    WorkerFigures,
)
from headrace.telemetry.redaction import shown_key

WIDE = 120
"""From so many columns on there is room for what is nice to know."""
USUAL = 76
"""Below so many columns names would be cut where nothing else is left out."""
FEWEST_STORY_LINES = 3
WORKERS_SHOWN = 5
HEAD_LINES = 4
GAP = "   "
INDENT = 10
"""Where the words of a story line begin, behind its time and its mark."""

MARKS = {
    Mark.STEP: ("·", "dim"),
    Mark.GOOD: ("✓", "green"),
    Mark.BAD: ("✗", "red"),
    Mark.WAIT: ("…", "yellow"),
}
CONDITIONS = {
    Condition.STARTING: "yellow",
    Condition.WORKING: "green",
    Condition.FROZEN: "red",
    Condition.KILLED: "bold red",
    Condition.DRAINING: "yellow",
    Condition.ENDED: "dim",
}


def screen(figures: Figures, story: Sequence[StoryLine], width: int, height: int) -> RenderableType:
    """Return what a terminal of this size shows."""
    subscriptions = _without(_subscriptions(figures, wide=width >= WIDE), ("unrouted", "keys"), width)
    workers = _without(_workers(figures.workers, wide=width >= WIDE), ("release", "leases"), width)
    used = HEAD_LINES + subscriptions.row_count + 2 + workers.row_count + 2
    room = max(height - used, FEWEST_STORY_LINES)
    told = [part for line in story for part in folded(story_line(line), width, " " * INDENT)][-room:]
    return Group(*_head(figures, width), subscriptions, Text(""), workers, Text(""), *told)


def story_line(line: StoryLine) -> Text:
    """Return one line of the story, however long."""
    sign, style = MARKS[line.mark]
    return Text.assemble(
        (f"{line.at:5.1f} s ", "dim"), (f"{sign} ", style), (shown(line.text, 300), "" if style == "dim" else style)
    )


def _head(figures: Figures, width: int) -> list[RenderableType]:
    title = Text.assemble(
        ("headrace demo", "bold"), f"  {shown(figures.subject, 60)}, {figures.events:,} events", no_wrap=True
    )
    title.truncate(max(width - 10, 10), overflow="ellipsis")
    clock = Table.grid(expand=True)
    clock.add_column(ratio=1, no_wrap=True)
    clock.add_column(justify="right", no_wrap=True)
    clock.add_row(title, Text(f"{figures.at:.0f} s", "dim"))
    words = Text(no_wrap=True)
    for name, value, style in (
        ("events/s ", f"{figures.rate:,.0f}", "bold green"),
        ("unrouted ", f"{figures.unrouted:,}", "bold"),
        ("inbox ", f"{figures.inbox:,}", "bold"),
        ("partitions ", f"{figures.partitions:,}", "bold"),
        ("handled ", f"{figures.handled:,}", "bold"),
    ):
        if words.cell_len + len(GAP + name + value) <= width:
            words.append(GAP if words else "").append(name, "dim").append(value, style)
    return [clock, _imported(figures), words, Text("")]


def _imported(figures: Figures) -> RenderableType:
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    share = figures.imported / figures.events if figures.events else 1.0
    bar = ProgressBar(total=1.0, completed=min(share, 1.0), complete_style="cyan", finished_style="green")
    grid.add_row(Text("imported", "dim"), bar, f"{figures.imported:,} of {figures.events:,}")
    return grid


def _subscriptions(figures: Figures, *, wide: bool) -> Table:
    table = _table(wide=wide)
    table.add_column("subscription", no_wrap=True, ratio=None if wide else 1, min_width=16)
    if wide:
        table.add_column("kind", no_wrap=True, min_width=22)
    table.add_column("status", no_wrap=True, min_width=10)
    for name, columns in (("handled", 9), ("unrouted", 9), ("inbox", 9), ("keys", 7), ("lag", 9)):
        table.add_column(name, justify="right", no_wrap=True, min_width=columns)
    if wide:
        table.add_column("in hand", justify="right", no_wrap=True, min_width=8)
        table.add_column("failing keys", no_wrap=True)
    by_name = {one.name: one for one in figures.subscriptions}
    failing = {one.subscription: one for one in figures.failing}
    for name in sorted(by_name):
        one = by_name[name]
        table.add_row(*_subscription(one, failing.get(name), wide=wide))
    for _ in range(figures.wanted - len(by_name)):
        table.add_row(Text("not set up yet", "dim"))
    return table


def _subscription(one: SubscriptionFigures, failing: FailingKey | None, *, wide: bool) -> list[RenderableType]:
    status = Text(one.status, "green" if one.status == "active" else "yellow")
    if one.parked:
        status = Text(f"{one.parked} parked", "bold red")
    elif failing is not None:
        status = Text("retrying 1", "yellow")
    numbers = (one.handled, one.unrouted, one.inbox, one.partitions)
    cells: list[RenderableType] = [Text(shown(one.name, 40), "bold")]
    cells += [Text(shown(one.kind, 60), "dim")] if wide else []
    cells += [status, *(f"{number:,}" if number else Text("·", "dim") for number in numbers), _lag(one)]
    if wide:
        cells += [f"{one.in_flight:,}" if one.in_flight else Text("·", "dim"), _failing(failing)]
    return cells


def _lag(one: SubscriptionFigures) -> Text:
    if one.is_caught_up:
        return Text("caught up", "green")
    if one.is_blocked_only and one.behind:
        return Text("rest done", "green")
    return Text(duration(one.lag) if one.lag is not None else "·")


def _failing(failing: FailingKey | None) -> Text:
    if failing is None:
        return Text("")
    style = "red" if failing.state == "parked" else "yellow"
    return Text(f"{shown_key(failing.key)}: {shown(failing.error, 40)}, {failing.waiting:,} wait behind it", style)


def _workers(workers: Sequence[WorkerFigures], *, wide: bool) -> Table:
    table = _table(wide=wide)
    table.add_column("worker", no_wrap=True, ratio=None if wide else 1, min_width=16)
    if wide:
        table.add_column("pid", no_wrap=True, min_width=22)
    table.add_column("is", no_wrap=True, min_width=10)
    for name, columns in (("release", 9), ("leases", 9), ("keys", 9), ("events", 7)):
        table.add_column(name, justify="right", no_wrap=True, min_width=columns)
    table.add_column("lease ends in", justify="right", no_wrap=True)
    for worker in _shown_workers(workers):
        table.add_row(*_worker(worker, wide=wide))
    return table


def _shown_workers(workers: Sequence[WorkerFigures]) -> list[WorkerFigures]:
    """Return those that run, and the latest of the others where there is room."""
    gone = [
        worker for worker in workers if worker.condition in (Condition.ENDED, Condition.KILLED) and not worker.leases
    ]
    there = [worker for worker in workers if worker not in gone]
    kept = gone[len(gone) - max(WORKERS_SHOWN - len(there), 0) :] if len(there) < WORKERS_SHOWN else []
    return sorted([*kept, *there], key=lambda worker: worker.number)


def _worker(worker: WorkerFigures, *, wide: bool) -> list[RenderableType]:
    dead = worker.condition is Condition.KILLED
    cells: list[RenderableType] = [Text(f"worker {worker.number}", "bold red" if dead else "bold")]
    cells += [Text(str(worker.pid), "dim")] if wide else []
    cells += [Text(worker.condition, CONDITIONS[worker.condition]), str(worker.release)]
    held = (worker.leases, worker.keys, worker.events)
    cells += [f"{number:,}" if number else Text("·", "dim") for number in held]
    if worker.ends_in is None:
        cells.append(Text("taken over", "green") if dead else Text("·", "dim"))
    else:
        left = max(worker.ends_in, 0.0)
        cells.append(Text(f"{left:.1f} s", "bold red" if dead else ""))
    return cells


def _without(table: Table, headers: Sequence[str], width: int) -> Table:
    """Return the table, on a narrow terminal without what can be missed most easily."""
    if width < USUAL:
        table.columns = [column for column in table.columns if column.header not in headers]
    return table


def _table(*, wide: bool) -> Table:
    return Table(box=None, expand=not wide, padding=(0, 1), pad_edge=False, header_style="dim", collapse_padding=True)
