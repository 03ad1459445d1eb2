"""The judge: what the read models are, against what plain SQL over the log says they must be."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from headrace.domain.event import Event
from headrace.domain.ids import Position
from headrace.runtime.demo.statements import statement
from headrace.store.pool import Database, Session

TABLES = {"customers": "by stream", "products": "by tag, in batches", "cash_book": "the whole log, in order"}
MAILS = "parcel_mails"


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


async def judge(dsn: str, mailbox: Path) -> list[Verdict]:
    """Return the verdict on each subscriber."""
    database = await Database.open(dsn, max_size=1, application_name="headrace demo")
    async with database, database.session() as session:
        verdicts = [await _table(session, name, shape) for name, shape in TABLES.items()]
        return [*verdicts, await _mails(session, mailbox)]


async def _table(session: Session, name: str, shape: str) -> Verdict:
    row = await session.fetchrow(statement(f"check_{name}"))
    if row is None:
        raise LookupError(f"check_{name} answered nothing")
    return Verdict(name, shape, row["rows"], row["events"] or 0, row["wanted_events"] or 0, row["differences"])


async def _mails(session: Session, mailbox: Path) -> Verdict:
    """Judge the reactor: every parcel mailed, each customer's in order; a mail may have been sent twice."""
    parcels = await session.fetch(statement("shipped_orders"))
    wanted = {(row["stream"], row["version"]): _execution_id(row["event_id"]) for row in parcels}
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
    note = f"{repeated} sent twice" if repeated else ""
    return Verdict(MAILS, "side effects", len(sent), len(sent), len(wanted), wrong + len(wanted.keys() - sent), note)


def _execution_id(event_id: UUID) -> str:
    event: Event[object] = Event(
        position=Position(1), stream="", version=1, type="", raw_data="{}", event_id=event_id, subscription=MAILS
    )
    return str(event.execution_id)


def _read(mailbox: Path) -> Iterator[dict[str, Any]]:
    """Yield the mails of all processes in the order of their writing."""
    files = sorted(mailbox.glob("*.jsonl"))
    mails = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    yield from sorted(mails, key=lambda mail: mail["at"])
