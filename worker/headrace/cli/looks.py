"""One look at a database, as `headrace status` and `headrace top` take it: figures, and the reasons that they give.

A value, and its one published form for scripts; how it is drawn is told in `cli.board`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from headrace.cli.output import duration, shown
from headrace.cli.reasons import reasons_of, standing_word
from headrace.domain.errors import NotFound
from headrace.ports.horizon import HolderReport
from headrace.ports.status import LiveWorker, PartitionStanding, Standing
from headrace.runtime.operations import Operations


@dataclass(frozen=True, slots=True)
class Look:
    """Everything that one look found. ``holder`` holds the line of our own event table, ``holders`` that of each
    subscription's; ``problem``: why a log cannot be read exactly, None where it can.
    """

    at: datetime
    standings: list[Standing]
    partitions: dict[str, list[PartitionStanding]]
    workers: list[LiveWorker]
    holder: HolderReport | None
    problem: str | None
    holders: Mapping[str, HolderReport] = field(default_factory=dict)

    def reasons(self, standing: Standing) -> list[str]:
        """Return what stands in the way of one of the subscriptions."""
        holder, report = None, self.holders.get(standing.subscription)
        if report is not None:
            age = "" if report.age is None else f", for {duration(report.age)} now"
            holder = shown(str(report), 500) + age
        return reasons_of(standing, holder, self.at)


async def look(operations: Operations, names: Sequence[str] | None, partitions: int = 0) -> Look:
    """Return how the named subscriptions stand (all when None), with at most so many partitions of each.

    Raises:
        NotFound: there is no subscription of a name; the message lists those that are there.

    """
    standings = await operations.status.standings(names)
    missing = set(names or ()) - {standing.subscription for standing in standings}
    if missing:
        known = ", ".join(s.subscription for s in await operations.status.standings()) or "none"
        raise NotFound(f"there is no subscription {', '.join(map(repr, sorted(missing)))}; there is {known}")
    found = {}
    if partitions:
        found = {s.subscription: await operations.status.partitions(s.subscription, partitions) for s in standings}
    lines = await operations.lines([standing.subscription for standing in standings])
    problem = "; ".join(lines.problems) or None
    workers = await operations.status.workers()
    return Look(operations.clock.now(), standings, found, workers, lines.own, problem, lines.of)


def look_json(seen: Look) -> dict[str, Any]:
    """Return a look as scripts get it; docs/cli-json.md tells each name, and a test holds them together."""
    subscriptions = []
    for standing in seen.standings:
        entry = asdict(standing) | {"inbox": standing.inbox, "backlog": standing.backlog}
        entry |= {"standing": standing_word(standing), "reasons": seen.reasons(standing)}
        if standing.subscription in seen.partitions:
            entry["partitions"] = [asdict(partition) for partition in seen.partitions[standing.subscription]]
        subscriptions.append(entry)
    return {
        "subscriptions": subscriptions,
        "workers": [asdict(worker) for worker in seen.workers],
        "horizon": {"held_by": None if seen.holder is None else asdict(seen.holder), "problem": seen.problem},
    }
