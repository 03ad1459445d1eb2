"""Appenders of every kind, in processes of their own: what a reader must not miss anything of.

Each appender owns a few streams and numbers their versions itself, as any client with plain SQL does. It lingers, rolls
back, uses savepoints, prepares transactions and has its session terminated; delays pass on the server, inside the
transaction, since that is where they hurt. Whoever goes on after a lost session asks the table where its streams are.
"""

import asyncio
import itertools
import json
import multiprocessing
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import asyncpg

from support.waiting import until

STREAMS = 4
LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
    asyncpg.TooManyConnectionsError,
    OSError,
)

Connection = Any  # the stubs make the record type a parameter that means nothing here
Row = tuple[str, int, str, str]


class RollBackError(Exception):
    """Raised inside a transaction that the appender wants to lose."""


@dataclass(frozen=True, slots=True)
class Attack:
    """How the appenders of one process behave; chances from 0 to 1, the longest delay in seconds."""

    dsn: str
    seed: int
    appenders: int
    events: int
    rollback: float = 0.1
    savepoint: float = 0.15
    prepare: float = 0.02
    linger: float = 0.4
    longest: float = 0.12
    table: str = "headrace.events"


@contextmanager
def appending(*attacks: Attack) -> Iterator[Callable[[], bool]]:
    """Run each attack in a process of its own; yields a function that tells whether all have ended.

    Raises AssertionError at the end if one of them ended badly.
    """
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=run_attack, args=(attack,), daemon=True) for attack in attacks]
    for process in processes:
        process.start()
    try:
        yield lambda: all(process.exitcode is not None for process in processes)
    finally:
        for process in processes:
            process.join(timeout=1)
            if process.exitcode is None:
                process.kill()
            process.join()
    bad = [process.exitcode for process in processes if process.exitcode != 0]
    if bad:
        raise AssertionError(f"appender processes ended with {bad}")


def run_attack(attack: Attack) -> None:
    """Run all appenders of one process to their end."""
    asyncio.run(_run_all(attack))


async def _run_all(attack: Attack) -> None:
    share = max(1, attack.events // attack.appenders)
    async with asyncio.TaskGroup() as group:
        for number in range(attack.appenders):
            group.create_task(_Appender(attack, number, share).run())


class _Appender:
    def __init__(self, attack: Attack, number: int, events: int) -> None:
        self._attack = attack
        self._chance = random.Random(f"{attack.seed}/{number}")
        self._name = f"a{attack.seed}-{number}"
        self._left = events
        self._versions = {f"{self._name}-{stream}": 0 for stream in range(STREAMS)}
        self._prepared = itertools.count(1)
        self._connection: Connection = None

    async def run(self) -> None:
        """Append until enough is committed."""
        while self._left > 0:
            try:
                if self._connection is None or self._connection.is_closed():
                    await until(self._connects, timeout=60, message="the server takes connections")
                await self._one_transaction()
            except LOST:
                await self._drop()
        await self._drop()

    async def _connects(self) -> bool:
        try:
            await self._connect()
        except LOST:
            await self._drop()
            return False
        return True

    async def _connect(self) -> None:
        settings = {"application_name": self._name}
        self._connection = await asyncpg.connect(self._attack.dsn, server_settings=settings, timeout=30)
        # The old session may still be about to commit: its end decides what the versions are.
        await self._connection.execute("select pg_advisory_lock(hashtext($1))", self._name, timeout=60)
        left = await self._connection.fetch("select gid from pg_prepared_xacts where gid like $1", f"{self._name}/%")
        for row in left:
            await self._connection.execute(f"{self._chance.choice(['commit', 'rollback'])} prepared '{row['gid']}'")
        rows = await self._connection.fetch(
            f"select stream, max(version) as version from {self._attack.table} where stream = any($1) group by stream",
            list(self._versions),
        )
        found = {row["stream"]: row["version"] for row in rows}
        self._versions = {stream: found.get(stream, 0) for stream in self._versions}

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*LOST, TimeoutError):
                await connection.close(timeout=5)

    async def _one_transaction(self) -> None:
        before = dict(self._versions)
        transaction = self._connection.transaction()
        await transaction.start()
        try:
            if self._chance.random() < 0.2:
                await self._connection.execute("select pg_current_xact_id()")
            for _ in range(self._chance.choice([1, 1, 1, 2, 3])):
                await self._insert_maybe_in_savepoint()
                await self._linger()
            if self._chance.random() < self._attack.rollback:
                raise RollBackError
        except RollBackError:
            self._versions = before
            await transaction.rollback()
            return
        if self._chance.random() < self._attack.prepare:
            await self._prepare(transaction, before)
        else:
            await transaction.commit()
        self._left -= sum(self._versions.values()) - sum(before.values())

    async def _insert_maybe_in_savepoint(self) -> None:
        if self._chance.random() >= self._attack.savepoint:
            await self._insert()
            return
        before = dict(self._versions)
        savepoint = self._connection.transaction()
        await savepoint.start()
        await self._insert()
        await self._linger()
        if self._chance.random() < 0.5:
            self._versions = before
            await savepoint.rollback()
        else:
            await savepoint.commit()

    async def _prepare(self, transaction: Any, before: dict[str, int]) -> None:
        gid = f"{self._name}/{next(self._prepared)}/{self._connection.get_server_pid()}"
        await self._connection.execute(f"prepare transaction '{gid}'")
        # The driver thinks that its transaction is open still; the server has ended it.
        await transaction.rollback()
        await self._linger()
        if self._chance.random() < 0.3:
            self._versions = before
            await self._connection.execute(f"rollback prepared '{gid}'")
        else:
            await self._connection.execute(f"commit prepared '{gid}'")

    async def _linger(self) -> None:
        if self._chance.random() < self._attack.linger:
            # Mostly short, now and then long: what holds a line is the odd one.
            seconds = min(self._attack.longest, self._chance.expovariate(1 / 0.004))
            if self._chance.random() < 0.02:
                seconds = self._attack.longest
            await self._connection.execute("select pg_sleep($1)", seconds)

    async def _insert(self) -> None:
        forms: list[Callable[[list[Row]], Awaitable[Any]]] = [
            self._one_by_one,
            self._values,
            self._copy,
            self._slow_select,
            self._function,
        ]
        stream = self._chance.choice(list(self._versions))
        rows: list[Row] = []
        for _ in range(self._chance.choice([1, 1, 2, 5, 12, 40])):
            self._versions[stream] += 1
            data = json.dumps({"by": self._name, "n": self._versions[stream]})
            rows.append((stream, self._versions[stream], self._chance.choice(["Placed", "Paid", "Sent"]), data))
        await self._chance.choice(forms)(rows)

    async def _one_by_one(self, rows: list[Row]) -> None:
        for row in rows:
            await self._connection.execute(
                f"insert into {self._attack.table} (stream, version, type, data) values ($1, $2, $3, $4)", *row
            )

    async def _values(self, rows: list[Row]) -> None:
        places = ", ".join(f"(${n}, ${n + 1}, ${n + 2}, ${n + 3})" for n in range(1, 4 * len(rows), 4))
        await self._connection.execute(
            f"insert into {self._attack.table} (stream, version, type, data) values {places}",
            *(value for row in rows for value in row),
        )

    async def _copy(self, rows: list[Row]) -> None:
        schema, _, table = self._attack.table.partition(".")
        await self._connection.copy_records_to_table(
            table, schema_name=schema, columns=["stream", "version", "type", "data"], records=rows
        )

    async def _slow_select(self, rows: list[Row]) -> None:
        """Linger between the lock on the table and the first position."""
        await self._connection.execute(
            f"""insert into {self._attack.table} (stream, version, type, data)
                select u.* from (select pg_sleep($5)) s,
                       unnest($1::text[], $2::int[], $3::text[], $4::jsonb[]) u(stream, version, type, data)""",
            *(list(column) for column in zip(*rows, strict=True)),
            self._chance.random() * 0.01,
        )

    async def _function(self, rows: list[Row]) -> None:
        streams, _, types, data = (list(column) for column in zip(*rows, strict=True))
        await self._connection.execute(
            """select * from headrace.append_v1($1, $2, $3, null, null, null, null,
                                         array[$4::text], array[$5::int], null, null, null)""",
            streams,
            types,
            data,
            streams[0],
            rows[0][1] - 1,
        )
