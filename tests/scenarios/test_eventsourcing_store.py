"""A genuine store of the library `eventsourcing`: made, locked and written by it, read where it lies."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import astuple
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from eventsourcing.persistence import IntegrityError

from headrace.store.mapping import inspect_table
from headrace.store.pool import Database as Pool
from support.apps import existing_store
from support.apps.their_shop import SEALED, Shop, shop_on
from support.commands import headrace
from support.databases import Database
from support.fleet import WorkerProcess, fleet
from support.invariants import assert_sound
from support.readers import ExactReader
from support.scenes import execute, rows, until_value, value
from support.waiting import until

VARIABLES = {"lease_seconds": "2", "log_level": "info"}
FUNCTIONS = {"POSTGRES_ENABLE_DB_FUNCTIONS": "y"}


@contextmanager
def shops(database: Database, *variables: dict[str, str]) -> Iterator[list[Shop]]:
    """Yield one application object of theirs for each set of variables, all on one table."""
    opened: list[Shop] = []
    try:
        opened.extend(shop_on(database.dsn, **each) for each in variables)
        yield opened
    finally:
        for shop in opened:
            shop.close()


def write(shop: Shop, seed: int, saves: int, shared: list[UUID]) -> int:
    """Save orders and changes of orders, some of them of several at once; return how many saves were refused because
    another thread had changed the same order (each leaves a gap in the notification ids).
    """
    chance, refused = random.Random(seed), 0
    for _ in range(saves):
        if chance.random() < 0.5:
            shop.place(uuid4(), chance.randrange(4))
            continue
        try:
            shop.extend(*chance.sample(shared, chance.choice([1, 1, 2, 3])), pay=chance.random() < 0.2)
        except IntegrityError:
            refused += 1
    return refused


def their_log(shop: Shop) -> list[tuple[Any, ...]]:
    """Return all that the library reads of its own store: id, aggregate, version, topic, time; in its order."""
    log, start = [], 1
    while page := shop.notification_log.select(start, limit=10):
        for notification in page:
            event: Any = shop.mapper.to_domain_event(notification)
            log.append(
                (
                    notification.id,
                    str(notification.originator_id),
                    notification.originator_version,
                    notification.topic,
                    event.timestamp,
                )
            )
        start = page[-1].id + 1
    return log


def their_orders(shop: Shop, log: list[tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Return each order as the library builds it from its own events: customer, version, lines, cents, paid."""
    found = {}
    for stream in {stream for _, stream, _, _, _ in log}:
        topics = [topic for _, of, _, topic, _ in log if of == stream]
        order: Any = shop.repository.get(UUID(stream))
        lines, paid = topics.count(existing_store.LINE_ADDED), topics.count(existing_store.PAID)
        found[stream] = (order.customer.hex, order.version, lines, 100 * order.total, paid)
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("form", ["plain", "sealed"])
async def test_projected_while_the_library_appends(database: Database, scale: float, form: str) -> None:
    """An application of theirs goes on writing, by table locks and by its database functions side by side, with refused
    saves in between; two workers project it by aggregate and whole, one is killed while it holds a lease. At the end
    the read models are what the library reads of its own store: every event once, in its order, decoded; compressed
    and encrypted as well.
    """
    variables = SEALED if form == "sealed" else {}
    saves = max(60, round(1000 * scale))
    with shops(database, variables, variables | FUNCTIONS) as (locks, calls), fleet(database.dsn) as workers:
        if form == "plain":
            await execute(
                database,
                "alter table shop_events add column stored_at timestamptz",
                "alter table shop_events alter stored_at set default clock_timestamp()",
            )
        shared = [locks.place(uuid4(), 2) for _ in range(12)]
        victim = workers.start(f"existing_store:{form}", variables=VARIABLES)
        workers.start(f"existing_store:{form}", variables=VARIABLES)
        await until_value(database, "select count(*) from whole_log", 36)
        writing = asyncio.gather(
            *(
                asyncio.to_thread(write, shop, seed, saves, shared)
                for seed, shop in enumerate([locks, locks, calls, calls])
            )
        )
        await kill_while_leased(database, victim)
        workers.start(f"existing_store:{form}", variables=VARIABLES)
        refused = await writing
        log = await asyncio.to_thread(their_log, locks)
        assert sum(refused) > 0, "no save was refused: nothing has left a gap"
        assert len(log) < log[-1][0], "the notification ids have no gap"
        for name in ("orders", "whole_log"):
            waited = headrace("wait", name, "--timeout", "60", dsn=database.dsn)
            assert waited.code == 0, waited.err
        orders = await asyncio.to_thread(their_orders, locks, log)
        assert any("an expired lease was taken over" in worker.text() for worker in workers.workers)
    assert await rows(database, "select id, stream, version, topic, at from whole_log order by place") == log
    found = await rows(database, "select id, customer, version, lines, cents, paid from orders")
    assert {row[0]: row[1:] for row in found} == orders
    assert len(found) == len(orders)
    assert await rows(database, "select sum(attempts) from headrace.failures") == [(None,)]
    if form == "plain":
        # The library's JSON is plain enough for SQL to say the same.
        assert await value(database, CENTS_IN_SQL) == sum(cents for _, _, _, cents, _ in orders.values())
    await assert_sound(database)


async def kill_while_leased(database: Database, worker: WorkerProcess) -> None:
    """Kill a worker at a moment when it holds a lease; it is stopped for the look, so that it cannot give it back."""

    async def killed() -> bool:
        worker.freeze()
        if await value(database, LEASED.format(worker.pid)):
            worker.kill()
            return True
        worker.thaw()
        return False

    await until(killed, 60.0, "the worker holds a lease", every=0.01)


LEASED = "select exists (select from headrace.leases where worker like '%:{}')"
CENTS_IN_SQL = """
    select 100 * sum((convert_from(state, 'UTF8')::jsonb -> 'price' ->> '_data_')::numeric) from shop_events
     where topic like '%:Order.LineAdded'
"""


@contextmanager
def open_save(shop: Shop, order: UUID) -> Iterator[Any]:
    """Yield a save of the library that has said everything but COMMIT; it commits at the end of the block."""
    recorder: Any = shop.recorder
    found: Any = shop.repository.get(order)
    found.add("cake", Decimal(3))
    stored = [shop.mapper.to_stored_event(event) for event in found.collect_events()]
    with recorder.datastore.get_connection() as connection, connection.transaction(), connection.cursor() as cursor:
        if recorder.datastore.enable_db_functions:
            given = [recorder.construct_pg_stored_event(*one) for one in map(astuple, stored)]
            cursor.execute(recorder.sql_invoke_pg_function_insert_events, (given,))
        else:
            recorder._insert_stored_events(cursor, stored)
        yield connection


async def test_their_functions_let_their_own_readers_pass_a_gap_and_not_ours(database: Database) -> None:
    """With its database functions the library takes no table lock: its notification log shows an id above one that is
    still open, and a reader that goes on from there has lost that one. Ours stays below it until it has ended.
    """
    with shops(database, FUNCTIONS, FUNCTIONS) as (slow, quick):
        first, second = slow.place(uuid4(), 0), quick.place(uuid4(), 0)
        async with exact_reader(database) as reader:
            await reader.read_on()
            with open_save(slow, first):
                quick.extend(second)
                theirs = [each.id for each in quick.notification_log.select(1, limit=10)]
                horizon = await reader.read_on()
                assert theirs == [1, 2, 4], "the gap is not there: the library locks, or its order is another"
                assert (horizon.line, horizon.is_held, len(reader.seen)) == (2, True, 2)
            assert not (await reader.read_on()).is_held
            assert [position for position, _, _ in reader.seen] == [1, 2, 3, 4]
            assert [stream for _, stream, _ in reader.seen[2:]] == [str(first), str(second)]


async def test_their_table_lock_neither_stops_nor_fools_the_reader(database: Database) -> None:
    """A save of theirs holds the whole table in EXCLUSIVE mode until it commits. Reading goes on beside it, its line is
    held by the session that has drawn ids, by name; a session that only holds the lock has drawn nothing yet.
    """
    with shops(database, {}) as (shop,):
        order = shop.place(uuid4(), 1)
        async with exact_reader(database) as reader, database.connection() as waiting:
            with open_save(shop, order) as connection:
                # Twice: only who is met twice is named.
                await reader.read_on()
                horizon = await reader.read_on()
                holder = await reader.service.holder()
                assert (len(reader.seen), horizon.line) == (2, 2)
                assert holder is not None
                assert holder.pid == connection.info.backend_pid
            await reader.read_on()
            assert len(reader.seen) == 3
            async with waiting.transaction():
                await waiting.execute("lock table shop_events in exclusive mode")
                assert not (await reader.read_on()).is_held


@asynccontextmanager
async def exact_reader(database: Database) -> AsyncIterator[ExactReader]:
    """Yield a reader of the library's table."""
    async with await Pool.open(database.dsn) as pool:
        async with pool.session() as session:
            table = await inspect_table(session, existing_store.plain_mapping)
        yield ExactReader.of(pool, table)
