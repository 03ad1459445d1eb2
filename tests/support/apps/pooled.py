"""What a run behind a pooler must not trip over, beside the fold of a real log.

The first event of some keys fails once in each process; a type of this database's own is written; an index is made that
no transaction may hold.
"""

import zlib
from datetime import timedelta
from typing import Any

from headrace import App, Connection, Event, PartitionKey, RetryPolicy, Stream, on, projector, setup
from support.apps.real_logs import PerStream, PerType, WholeLog

CREATE = """
    do $$ begin create type mood as enum ('calm', 'cross'); exception when duplicate_object then null; end $$;
    create table if not exists flaky (key text, version int, moods mood[] not null, primary key (key, version))
"""


class NotYetError(Exception):
    """Once is not enough."""


@projector("flaky", partition_by=Stream(), retry=RetryPolicy(attempts=10, base=timedelta(milliseconds=20), jitter=0))
class Flaky:
    """One row per event; `cross` is in the moods of an event that this process had to try again."""

    def __init__(self) -> None:
        self._tried: set[str] = set()

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model."""
        await db.execute(CREATE)
        await db.execute("create index concurrently if not exists flaky_moods on flaky (moods)")

    @on()
    async def see(self, event: Event[Any], key: PartitionKey, db: Connection) -> None:
        """Take one event."""
        moods = ["calm"]
        if event.version == 1 and zlib.crc32(key.encode()) % 50 == 0:
            if key not in self._tried:
                self._tried.add(key)
                raise NotYetError(key)
            moods.append("cross")
        db.defer("insert into flaky values ($1, $2, $3::mood[])", key, event.version, moods)


app = App(PerStream(), PerType(), WholeLog(), Flaky(), name="pooled")
