"""Appenders by plain SQL, with transactions of random length; every committed event is told afterwards."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import asyncpg

from support.waiting import work_for

INSERT = "insert into headrace.events (stream, version, type, data) values ($1, $2, $3, '{}'::jsonb)"


@dataclass(slots=True)
class Appended:
    """What appenders have committed: the last version of each stream."""

    versions: Counter[str] = field(default_factory=Counter)
    rolled_back: int = 0

    @property
    def events(self) -> int:
        """How many events were committed."""
        return sum(self.versions.values())


async def append_for(
    dsn: str, seconds: float, *, appenders: int = 8, streams: int = 20, held_seconds: float = 6.0, seed: int = 1
) -> Appended:
    """Append by so many connections for some seconds, each to streams of its own.

    One transaction in ten is rolled back; the first connection holds one transaction open for
    `held_seconds` at its end, and one in fifty after that.
    """
    appended = Appended()
    ends_at = asyncio.get_running_loop().time() + seconds
    await asyncio.gather(
        *(
            _appender(dsn, number, ends_at, streams, held_seconds, random.Random(seed * 100 + number), appended)
            for number in range(appenders)
        )
    )
    return appended


async def _appender(
    dsn: str, number: int, ends_at: float, streams: int, held_seconds: float, chance: random.Random, appended: Appended
) -> None:
    connection = await asyncpg.connect(dsn, server_settings={"application_name": f"appender {number}"})
    held_once = False
    try:
        while asyncio.get_running_loop().time() < ends_at:
            new: Counter[str] = Counter()
            transaction = connection.transaction()
            await transaction.start()
            for _ in range(chance.randint(1, 12)):
                stream = f"a{number}-{chance.randrange(streams)}"
                new[stream] += 1
                await connection.execute(INSERT, stream, appended.versions[stream] + new[stream], "Happened")
                await work_for(chance.expovariate(1 / 0.004))
            if chance.random() < 0.1:
                await transaction.rollback()
                appended.rolled_back += 1
                continue
            if number == 0 and (not held_once or chance.random() < 0.02):
                held_once = True
                await work_for(held_seconds)
            await transaction.commit()
            appended.versions.update(new)
    finally:
        await connection.close(timeout=10)
