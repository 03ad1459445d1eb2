"""How subscriptions stand, drawn: a look in, lines of a width out.

Pure, so that every width can be looked at in a test. One line a subscription where that fits, two where it does not,
beneath it the reasons why it does not move. Figures are never cut; a name that is too long loses its middle.
"""

from collections.abc import Mapping, Sequence

from rich.text import Text

from headrace.cli.looks import Look
from headrace.cli.output import BAD, BUSY, CARE, GOOD, QUIET, Cell, coloured, count, duration, shown
from headrace.cli.reasons import standing_word
from headrace.cli.tables import GAP, aligned, fitted, folded, shortened, widest
from headrace.domain.subscription import Status
from headrace.ports.status import LiveWorker, PartitionStanding, Standing
from headrace.telemetry.redaction import shown_key

OF_STATUS = {
    Status.ACTIVE: GOOD,
    Status.BOOTING: BUSY,
    Status.NEW: BUSY,
    Status.PAUSED: CARE,
    Status.ERROR: f"bold {BAD}",
    Status.FAILED: f"bold {BAD}",
}
NAME_COLUMNS = 200
LIVE_COLUMNS = 110
"""From here on a live screen has one line a subscription: below it figures that grow would change the lines about."""
REASON_INDENT = GAP * 2
SCREEN_EDGE = 2
"""Lines of the screen that the head and the foot take."""

Rates = Mapping[str, float]
"""Events handled in a second, by subscription."""


def status_lines(seen: Look, width: int | None, rates: Rates | None = None) -> list[Text]:
    """Return the lines of all subscriptions: figures, and beneath each why it stands still."""
    drawn = _figures(seen.standings, width, rates)
    lines: list[Text] = []
    for standing, figures in zip(seen.standings, drawn, strict=True):
        lines += figures
        for reason in seen.reasons(standing):
            lines += folded(coloured(f"{GAP}{reason}", CARE), width, REASON_INDENT)
    return lines


def detail_lines(seen: Look, standing: Standing, width: int | None) -> list[Text]:
    """Return what else is known of one subscription."""
    shape = "by key" if standing.partitioned else "the whole log in order"
    head = "unknown" if standing.head is None else f"{standing.head}"
    on_it = [worker for worker in seen.workers if standing.subscription in worker.subscriptions]
    largest = f", the largest with {count(standing.largest_partition, 'event')}" if standing.largest_partition else ""
    facts = {
        "what": f"{standing.kind}, {shape}; app {shown(standing.app)}, group {shown(standing.group_name)}",
        "log": f"{standing.position} of {head}; {standing.unrouted:,} unrouted, {standing.held:,} held",
        "inbox": f"{standing.inboxed:,} due or leased in {count(standing.pending_partitions, 'partition')}{largest}; "
        f"{standing.waiting:,} waiting; {standing.in_flight:,} in flight",
        "failing": f"{standing.parked:,} parked, {standing.backing_off:,} backing off",
        "so far": f"{count(standing.processed_total, 'event')} handled in "
        f"{duration(standing.busy_seconds_total)} of handler time",
        "workers": ", ".join(f"{shown(w.name)} ({count(w.lanes, 'lane')})" for w in on_it) or "none",
    }
    if standing.notes:
        facts["events"] = shown("; ".join(standing.notes), 1000)
    lines: list[Text] = []
    for name, value in facts.items():
        line = coloured("", "").append(f"{GAP}{name:8}{GAP}", QUIET)
        indent = " " * line.cell_len
        lines += folded(line.append(value), width, indent)
    return lines


def partition_lines(name: str, partitions: Sequence[PartitionStanding], width: int | None) -> list[Text]:
    """Return the lines of the partitions that have work, under a heading."""
    order = ", furthest behind first" if len(partitions) > 1 else ""
    found = f"{count(len(partitions), 'partition')} with work{order}" if partitions else "no partition has work"
    title = f"{shown(name)}: {found}"
    rows = fitted([_partition_row(partition) for partition in partitions], width)
    return [*folded(coloured(title, "bold"), width, GAP), *(line for lines in rows for line in lines)]


def screen_lines(
    seen: Look, size: tuple[int, int], rates: Rates, news: str | None = None, scrolled: int = 0
) -> tuple[list[Text], int]:
    """Return the lines of a live screen of (columns, rows), and how far it could be scrolled; ``news`` is a trouble."""
    width, height = size
    body = status_lines(seen, width, rates)
    if not seen.standings:
        body = folded("there is no subscription yet: start `headrace worker`, or run `headrace setup`", width, GAP)
    if seen.problem is not None:
        body += folded(coloured(f"error: {shown(seen.problem, 1000)}", BAD), width, GAP)
    if seen.workers:
        body += [coloured("", ""), *_worker_lines(seen, width)]
    room = max(height - SCREEN_EDGE, 1)
    scrolled = max(0, min(scrolled, len(body) - room))
    visible = body[scrolled : scrolled + room]
    below = len(body) - scrolled - len(visible)
    more = f", {count(below, 'more line')}" if below else ""
    foot = f"q ends  {'↑↓ scroll' if scrolled or below else ''}{more}"
    shown_foot = coloured(foot.rstrip(), QUIET) if news is None else coloured(shown(news, 500), f"bold {BAD}")
    lines = [_head_line(seen, rates, width), *visible]
    lines += [coloured("", "")] * (height - 1 - len(lines))
    return [_cropped(line, width) for line in [*lines, shown_foot]], scrolled


def _figures(standings: Sequence[Standing], width: int | None, rates: Rates | None) -> list[list[Text]]:
    """Return the lines of each subscription: all in one, or all in two."""
    rows = [_row(standing, NAME_COLUMNS, rates) for standing in standings]
    lines = aligned(rows)
    if width is None or (widest(lines) <= width and (rates is None or width >= LIVE_COLUMNS)):
        return [[line] for line in lines]
    # What says how it stands comes first; the name gives way where even that is too wide.
    behind = widest(aligned([[row[1], row[4], *row[5:]] for row in rows])) + len(GAP)
    short = [[shortened(str(row[0]), width - behind), row[1], row[4], *row[5:]] for row in rows]
    upper = aligned([[coloured(str(row[0]), "bold"), *row[1:]] for row in short])
    lower = fitted([[f"{GAP}{row[2]}", row[3]] for row in rows], width)
    return [[*folded(line, width, REASON_INDENT), *more] for line, more in zip(upper, lower, strict=True)]


def _row(standing: Standing, name_columns: int, rates: Rates | None) -> list[Cell]:
    parked = f" (parked: {standing.parked})" if standing.parked else ""
    unrouted = f"unrouted: {standing.unrouted}  " if standing.unrouted else ""
    rate = [] if rates is None else [f"{rates.get(standing.subscription, 0.0):,.0f}/s"]
    return [
        coloured(shown(standing.subscription, name_columns), "bold"),
        coloured(str(standing.status), OF_STATUS.get(standing.status, "")),
        f"{standing.position}{parked}",
        f"{unrouted}inbox: {standing.inbox} in {standing.pending_partitions}",
        _word(standing),
        *rate,
        count(standing.workers, "worker") if standing.workers else "no worker",
    ]


def _word(standing: Standing) -> Cell:
    word = standing_word(standing)
    return coloured(word, GOOD) if word == "caught up" else word


def _partition_row(partition: PartitionStanding) -> list[Cell]:
    return [
        f"{GAP}#{shown_key(partition.key)}",
        f"at {partition.position}",
        count(partition.backlog, "event"),
        _partition_word(partition),
        shown((partition.error or "").partition("\n")[0], 100),
    ]


def _partition_word(partition: PartitionStanding) -> str:
    if partition.hold is not None:
        return f"held: {shown(partition.hold, 60)}" if partition.hold else "held"
    if partition.worker is not None:
        return f"leased by {shown(partition.worker, 60)}"
    return str(partition.failure) if partition.failure is not None else "due"


def _head_line(seen: Look, rates: Rates, width: int) -> Text:
    head = max((s.head for s in seen.standings if s.head is not None), default=None)
    facts: list[Cell] = [
        coloured("headrace", "bold"),
        f"{seen.at:%H:%M:%S}",
        count(len(seen.workers), "worker"),
        f"{sum(rates.values()):,.0f} events/s",
        f"backlog {sum(s.backlog for s in seen.standings):,}",
        *([] if head is None else [f"head {head}"]),
    ]
    # The last facts are the first that a narrow screen does without.
    while len(facts) > 1 and widest(aligned([facts])) > width:
        facts.pop()
    return aligned([facts])[0]


def _worker_lines(seen: Look, width: int) -> list[Text]:
    rows = [_worker_row(seen, worker) for worker in seen.workers]
    return [coloured("workers", "bold"), *(line for lines in fitted(rows, width) for line in lines)]


def _worker_row(seen: Look, worker: LiveWorker) -> list[Cell]:
    up = (seen.at - worker.started_at).total_seconds()
    return [
        f"{GAP}{shown(worker.name, 60)}",
        f"{shown(worker.app, 60)} {shown(worker.version, 20)}",
        count(worker.lanes, "lane"),
        f"up {duration(up)}",
        f"beat {duration(worker.beat_seconds)} ago",
        coloured(shown(", ".join(worker.subscriptions)), QUIET),
    ]


def _cropped(line: Text, width: int) -> Text:
    cut = line.copy()
    cut.truncate(width, overflow="ellipsis")
    return cut
