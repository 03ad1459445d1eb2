"""Exact reading under attack: whatever appenders do, nothing is missed, and nobody waits for the reader.

Random schedules find wide windows only; the narrow ones are in test_reader_schedules.py.
"""

import asyncio
import random
from collections.abc import Callable
from functools import partial

import pytest

from headrace.store.events import PostgresEvents
from headrace.store.pool import Database
from support import databases
from support.appenders import Attack, appending
from support.readers import ExactReader, NaiveReader, assert_complete, stored_events
from support.waiting import until

EVENTS = 200_000
PROCESSES = 2
APPENDERS = 16


async def terminate_some(database: Database, ended: Callable[[], bool]) -> int:
    """End the session of a random appender now and then; return how many."""
    chance, terminated = random.Random(7), 0
    while not ended():
        async with database.session() as session:
            await session.execute("select pg_sleep($1)", chance.uniform(0.1, 0.5))
            terminated += await session.fetchval(
                """select count(pg_terminate_backend(pid)) from (select pid from pg_stat_activity
                    where datname = current_database() and application_name like 'a%-%' order by random() limit 1) x"""
            )
    return terminated


async def read_until(reader: ExactReader | NaiveReader, ended: Callable[[], bool], restarts: bool = False) -> None:
    """Read on in a tight loop; with restarts, forget all but the position now and then, open appends or not."""
    chance = random.Random(11)
    while not ended():
        await reader.read_on()
        if restarts and isinstance(reader, ExactReader) and chance.random() < 0.02:
            reader.restart()


async def caught_up(reader: ExactReader) -> bool:
    """Read on and tell whether nothing is held back."""
    return not (await reader.read_on()).is_held


@pytest.mark.both_versions
@pytest.mark.timeout(900)
async def test_nothing_is_missed_under_attack(database: databases.Database, scale: float) -> None:
    """16 appenders by INSERT, COPY, VALUES and function, with delays, rollbacks, savepoints, prepared transactions and
    terminated sessions: two exact readers, one of which restarts again and again, see every event once, in order, with
    versions in order; the naive reader beside them misses some, so the attack bites.
    """
    share = int(EVENTS * scale) // PROCESSES
    attacks = [Attack(database.dsn, seed, APPENDERS // PROCESSES, share) for seed in range(PROCESSES)]
    async with await Database.open(database.dsn, max_size=6) as store:
        table = (await PostgresEvents.open(store)).table
        steady, restarting, naive = ExactReader.of(store, table), ExactReader.of(store, table), NaiveReader(store)
        with appending(*attacks) as ended:
            async with asyncio.TaskGroup() as group:
                group.create_task(read_until(steady, ended))
                group.create_task(read_until(restarting, ended, restarts=True))
                group.create_task(read_until(naive, ended))
                terminated = group.create_task(terminate_some(store, ended))
        stored = await stored_events(store)
        for reader in (steady, restarting):
            await until(partial(caught_up, reader), message="the line reaches the head when all appends have ended")
            assert_complete(reader.seen, stored)
        await naive.read_on()
    assert len(stored) >= EVENTS * scale * 0.9
    assert terminated.result() > 0
    missed = len(stored) - len(naive.seen)
    print(f"{len(stored)} events, {stored[-1][0] - len(stored)} holes, the naive reader missed {missed}")  # noqa: T201
    assert missed > 0, "the naive reader missed nothing: this attack proves nothing"
