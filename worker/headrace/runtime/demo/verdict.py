"""The judge: what the read models are, against what plain SQL over the log says they must be."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from headrace.domain.event import Event
from headrace.domain.ids import Position
from headrace.runtime.demo.plot import Plot
from headrace.runtime.demo.statements import statement
from headrace.store.pool import Database, Session


@dataclass(frozen=True, slots=True)
class Verdict:
    """One subscriber judged. ``events`` were handled by its own account, ``wanted`` by the log's."""

    name: str
    shape: str
    rows: int
    events: int
    wanted: int
    differences: int
    note: str = ""

    @property
    def right(self) -> bool:
        """Whether nothing is missing, doubled or different."""
        return self.differences == 0 and self.events == self.wanted


async def judge(dsn: str, mailbox: Path, plot: Plot) -> list[Verdict]:
    """Return the verdict on each subscriber of a play, by name."""
    database = await Database.open(dsn, max_size=1, application_name="headrace demo")
    async with database, database.session() as session:
        return [
            await _mails(session, mailbox, plot) if name == plot.reactor else await _table(session, name, kind)
            for name, kind in sorted(plot.kinds.items())
        ]


async def _table(session: Session, name: str, shape: str) -> Verdict:
    row = await session.fetchrow(statement(f"check_{name}"))
    if row is None:
        raise LookupError(f"check_{name} answered nothing")
    return Verdict(name, shape, row["rows"], row["events"] or 0, row["wanted_events"] or 0, row["differences"])


async def _mails(session: Session, mailbox: Path, plot: Plot) -> Verdict:
    """Judge the reactor: every mail sent, each stream's in order; a mail may have been sent twice."""
    parcels = await session.fetch(statement("mailed_events"), plot.mailed)
    wanted = {(row["stream"], row["version"]): _execution_id(plot.reactor, row["event_id"]) for row in parcels}
    sent, repeated, wrong = set[tuple[str, int]](), 0, 0
    last: dict[str, int] = {}
    for mail in _read(mailbox):
        parcel = (mail["to"], mail["version"])
        wrong += wanted.get(parcel) != mail["id"]
        if parcel in sent:
            repeated += 1
            continue
        sent.add(parcel)
        wrong += mail["version"] < last.get(mail["to"], 0)
        last[mail["to"]] = mail["version"]
    note = f"{repeated} sent twice by the kill, under the same id" if repeated else ""
    differences = wrong + len(wanted.keys() - sent)
    return Verdict(plot.reactor, plot.kinds[plot.reactor], len(sent), len(sent), len(wanted), differences, note)


def _execution_id(reactor: str, event_id: UUID) -> str:
    event: Event[object] = Event(
        position=Position(1), stream="", version=1, type="", raw_data="{}", event_id=event_id, subscription=reactor
    )
    return str(event.execution_id)


def _read(mailbox: Path) -> Iterator[dict[str, Any]]:
    """Yield the mails of all processes in the order of their writing."""
    files = sorted(mailbox.glob("*.jsonl"))
    mails = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    yield from sorted(mails, key=lambda mail: mail["at"])
