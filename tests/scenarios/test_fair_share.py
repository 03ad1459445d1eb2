"""Slow work spreads: no claim takes more than its share, no lane more than twice its share."""

import json
import math
from dataclasses import dataclass
from datetime import datetime

from support.bulk import append_many
from support.databases import Database
from support.fleet import Fleet, fleet
from support.invariants import assert_sound
from support.scenes import execute, rows, until_value

WORKERS = 8
PARTITIONS = 64
EVENTS = 5
HISTORY = """
    create table claims (
        lease bigint primary key, parts int not null, left_due int not null, asked_at timestamptz not null,
        noted_at timestamptz not null
    );
    create function note_claim() returns trigger language plpgsql as $$
    begin
        insert into claims
        select new.id, new.parts, count(*), statement_timestamp(), clock_timestamp() from headrace.ready r
         where r.run = new.run and r.lease is null and r.due_at <= clock_timestamp();
        return null;
    end $$;
    create trigger note_claim after insert on headrace.leases for each row when (new.purpose = 'work')
        execute function note_claim();
"""
"""Leases go with their flush: this keeps what was claimed, and what was due and left."""
ALL_COUNTED = """
    select (select status from headrace.subscriptions) = 'active' and count(*) = $1
           and min(w.beat_at) > max(w.started_at) + interval '1 s' from headrace.workers w
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim, by the server's record of it and by the log of the worker that got it."""

    parts: int
    left_due: int
    asked_at: datetime
    noted_at: datetime
    had_at: datetime

    def overlaps(self, other: "Claim") -> bool:
        """Tell whether the other claim may have become visible between what this one counted and what was noted."""
        return other is not self and other.had_at >= self.asked_at and other.asked_at <= self.noted_at


async def claims_of(database: Database, workers: Fleet) -> list[Claim]:
    """Return all claims in the order in which they were asked for."""
    had = {}
    for worker in workers.workers:
        for line in worker.text().splitlines():
            fields = json.loads(line) if line.startswith("{") else {}
            if fields.get("event") == "Claimed":
                had[fields["lease"]] = datetime.fromisoformat(fields["time"])
    noted = await rows(database, "select lease, parts, left_due, asked_at, noted_at from claims order by asked_at")
    assert {row[0] for row in noted} == had.keys()
    return [Claim(parts, left, asked, seen, had[lease]) for lease, parts, left, asked, seen in noted]


async def test_slow_work_is_shared_out_fairly(database: Database) -> None:
    """64 partitions with 5 events each, 200 ms an event, 8 processes of one lane, alive before the events arrive.

    No claim takes more than its share of what was due when it was made, divided by the 8 lanes; the first takes 8 at
    most. No lane handles more than 16 partitions, and everything is handled once.
    """
    await execute(database, HISTORY)
    with fleet(database.dsn) as workers:
        for _ in range(WORKERS):
            workers.start("slow:app", variables={"log_level": "debug", "log_format": "json"})
        await until_value(database, ALL_COUNTED.replace("$1", str(WORKERS)), True, timeout=120, every=0.2)
        await append_many(database, PARTITIONS * EVENTS, PARTITIONS)
        await until_value(database, "select count(*) from slow", PARTITIONS * EVENTS, timeout=120, every=0.2)
        await until_value(database, "select count(*) from headrace.leases", 0)
        for worker in workers.workers:
            worker.terminate()
        assert [worker.wait() for worker in workers.workers] == [0] * WORKERS
        claims = await claims_of(database, workers)

    for claim in claims:
        due = claim.left_due + claim.parts + sum(other.parts for other in claims if claim.overlaps(other))
        assert claim.parts <= math.ceil(due / WORKERS), claims
    assert claims[0].parts <= PARTITIONS / WORKERS
    by_lane = await rows(database, "select pid, count(distinct key) from slow group by pid")
    assert max(partitions for _, partitions in by_lane) <= 2 * PARTITIONS / WORKERS, by_lane
    assert len(by_lane) == WORKERS
    await assert_sound(database)
