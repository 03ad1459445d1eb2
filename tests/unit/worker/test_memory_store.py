"""The shared state of the in-memory ports: undo, invariants, switched-off store, recorded statements."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.ids import LeaseId, PartitionId, Position, Run
from headrace.ports.work import ClaimRequest, Flush, FlushMode, Progress
from headrace.testing.connection import NoAnswer, RecordedConnection, Statement
from headrace.testing.hooks import MemoryHooks
from headrace.testing.invariants import broken_invariants
from headrace.testing.memory import CountersRow, MemoryStore
from headrace.testing.randomness import FixedIdentity
from headrace.testing.tables import Journal, Table
from headrace.testing.work import MemoryWork
from support.worlds import MemoryWorld, failure_of

A = PartitionId(1)


async def failing_store() -> MemoryStore:
    """Return a store with one failing key, one leased key and one drained key, all in order."""
    world = MemoryWorld()
    orders = await world.subscribe()
    for stream in ("a", "b", "c"):
        await world.append(stream, "X", "X")
    await world.route(orders)
    group = await world.claimed(orders, parts=1)
    loaded = await world.load(group)
    await world.work().fail(failure_of(group, loaded.partitions[0]))
    await world.work().release([group.lease])
    await world.claimed(orders, parts=1)
    last = await world.claimed(orders)
    positions = (Position(5), Position(6))
    progress = Progress(last.parts[0].part, Position(6), positions)
    await world.work().flush(Flush(orders.run, last.lease, FlushMode.END, (progress,)))
    assert broken_invariants(world.store) == []
    return world.store


def set_ready(**changes: object) -> Callable[[MemoryStore], None]:
    """Return a damage to the ready row of the failing key."""
    return lambda store: store.ready.put(A, replace(store.ready[A], **changes))  # type: ignore[arg-type]


def add_lease(store: MemoryStore) -> None:
    """Insert a lease that lives too long."""
    (lease,) = store.leases.values()
    store.leases.put(LeaseId(9), replace(lease, id=LeaseId(9), expires_at=store.later(100_000)))


DAMAGES: list[tuple[str, Callable[[MemoryStore], object]]] = [
    ("I1", set_ready(backlog=7)),
    ("I1", lambda store: store.ready.drop(A)),
    ("I1", lambda store: store.inbox.drop(A)),
    ("I2", set_ready(first_pos=Position(2))),
    ("I3", set_ready(lease=LeaseId(77))),
    ("I4", lambda store: store.partitions.drop(A)),
    ("I5", lambda store: store.partitions.put(A, replace(store.partitions[A], position=Position(1)))),
    ("I6", lambda store: store.counters.put((Run(1), 0), CountersRow(handled=1, drained=1))),
    ("I6", lambda store: store.counters.put((Run(1), 0), CountersRow(handled=2, drained=0))),
    ("I7", set_ready(attempts=0)),
    ("I7", lambda store: store.failures.drop(A)),
    ("I8", add_lease),
    ("I9", lambda store: store.cursors.put(Run(1), replace(store.cursors[Run(1)], position=Position(99)))),
    ("I10", set_ready(due_at=None)),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGES, ids=[f"{n}-{name}" for n, (name, _) in enumerate(DAMAGES)])
async def test_each_invariant_is_seen_when_it_is_broken(name: str, damage: Callable[[MemoryStore], object]) -> None:
    """A damage by hand to one row is named by the invariant that it breaks."""
    store = await failing_store()
    damage(store)
    assert any(sentence.startswith(f"{name}:") for sentence in broken_invariants(store))


async def test_permanent_ready_row_has_no_backlog() -> None:
    """The one key of an unpartitioned subscription never has a backlog, and may wait for ever only with a reason."""
    world = MemoryWorld()
    await world.subscribe("log", None)
    world.store.ready.put(A, replace(world.store.ready[A], backlog=1, due_at=None))
    found = broken_invariants(world.store)
    assert [sentence[:3] for sentence in found] == ["I1:", "I10"]


def test_block_that_raises_leaves_no_trace() -> None:
    """Inserts, updates and deletes of a block are all taken back, in nested blocks the inner one alone."""
    journal = Journal()
    table: Table[str, int] = Table(journal)
    table.put("kept", 1)

    def inner() -> None:
        with journal.atomic():
            table.put("kept", 3)
            table.drop("new")
            raise ValueError

    with journal.atomic():
        table.put("new", 2)
        with pytest.raises(ValueError, match=r"^$"):
            inner()
        assert dict(table) == {"kept": 1, "new": 2}
    assert dict(table) == {"kept": 1, "new": 2}

    def outer() -> None:
        with journal.atomic():
            with journal.atomic():
                table.drop("kept")
                table.put("new", 5)
            raise KeyError

    with pytest.raises(KeyError):
        outer()
    assert dict(table) == {"kept": 1, "new": 2}


def test_rehearsal_answers_and_changes_nothing() -> None:
    """A rehearsed operation gives its answer, and its writes are gone."""
    journal = Journal()
    table: Table[str, int] = Table(journal)

    def operation() -> int:
        table.put("a", 1)
        return len(table)

    assert journal.rehearse(operation) == 1
    assert dict(table) == {}


async def test_switched_off_store_is_unavailable() -> None:
    """A store that is switched off refuses every call as a database does that is down, and works again afterwards."""
    world = MemoryWorld()
    orders = await world.subscribe()
    world.store.is_available = False
    with pytest.raises(Unavailable):
        await world.route(orders)
    with pytest.raises(Unavailable):
        await world.work().take_over()
    world.store.is_available = True
    assert (await world.route(orders)).complete


async def test_every_call_lets_others_run() -> None:
    """A loop that only calls a port does not keep the event loop to itself."""
    store = MemoryStore()
    work = MemoryWork(store, FixedIdentity())
    ran = asyncio.Event()
    task = asyncio.create_task(asyncio.sleep(0))
    task.add_done_callback(lambda _: ran.set())
    request = ClaimRequest(Run(1), LeaseId(1), 1, 1, 1, 0, 1.0)
    for _ in range(5):
        await work.claim(request)
    assert ran.is_set()


async def test_read_without_a_responder_says_what_to_give() -> None:
    """The store has no tables: a handler that reads needs a responder, and the message says so."""
    connection = RecordedConnection(None)
    assert await connection.execute("insert into t values (1)") == "INSERT"
    with pytest.raises(NoAnswer, match="respond"):
        await connection.fetch("select 1")
    assert connection.sent == [Statement("insert into t values (1)")]


async def test_responder_sees_what_was_deferred_first() -> None:
    """Deferred statements are sent, in order, before the next one."""
    seen: list[str] = []

    def respond(statement: Statement) -> list[tuple[int]]:
        seen.append(statement.query)
        return [(len(seen),)]

    connection = RecordedConnection(respond)
    connection.defer("one")
    connection.defer("two")
    assert seen == []
    assert await connection.fetchval("three") == 3
    assert seen == ["one", "two", "three"]


async def test_hook_statements_commit_one_by_one() -> None:
    """What a hook did before it raised stays; what it deferred then is dropped."""
    store = MemoryStore()
    async with MemoryHooks(store).connection() as connection:
        await connection.execute("create table a ()")
        connection.defer("create table b ()")
    assert [statement.query for statement in store.executed] == ["create table a ()", "create table b ()"]

    async def raise_in_hook() -> None:
        async with MemoryHooks(store).connection() as connection:
            await connection.execute("create table c ()")
            connection.defer("create table d ()")
            raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        await raise_in_hook()
    assert [statement.query for statement in store.executed][2:] == ["create table c ()"]


async def test_rows_are_values() -> None:
    """Rows are immutable, so that nobody changes the tables by accident."""
    store = await failing_store()
    for row in (store.ready[A], store.failures[A], next(iter(store.leases.values()))):
        with pytest.raises(AttributeError):
            row.run = Run(5)  # type: ignore[misc]
