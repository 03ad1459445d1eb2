"""Keys and data of any kind: what is different stays apart, what cannot be a key stops its main, the rest goes on."""

import json
import random
from collections import Counter
from functools import partial
from typing import Any

import asyncpg
import pytest

from headrace import (
    App,
    Connection,
    Event,
    Hashed,
    Partitioner,
    PartitionKey,
    RetryPolicy,
    Stream,
    TableMapping,
    on,
    projector,
    setup,
)
from headrace.domain.engine_events import MainStopped
from headrace.domain.errors import BadName, UsageError
from headrace.domain.ids import Position
from headrace.runtime.operations import open_operations
from headrace.settings import read_settings
from support.commands import Outcome, headrace
from support.databases import Database
from support.invariants import assert_sound
from support.scenes import append, execute, opened, options, rows, serving, until_value, value
from support.waiting import until

AT_ONCE = RetryPolicy(attempts=0, parked_attempts=0)


def random_text(size: int, seed: int = 1) -> str:
    """Return text of any characters that PostgreSQL can keep, of exactly so many UTF-8 bytes."""
    chance, text = random.Random(seed), ""
    while (left := size - len(text.encode())) > 0:
        code = chance.choice([chance.randint(1, 0x7F), chance.randint(1, 0xD7FF), chance.randint(0xE000, 0x10FFFF)])
        character = chr(code)
        text += character if len(character.encode()) <= left else "x"
    return text


KEYS = [
    "A",
    "a",
    "",
    " ",
    "a ",
    "0",
    "\u00e9",  # é as one character
    "e\u0301",  # and as two: another key
    "\U0001f600",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u05e9\u05dc\u05d5\u05dd",
    "\u202eabc\u202c",
    "a#b:c/d\\e'f\"g\n\t%s$1",
    "\ufeffa",
    random_text(1000),
]


class OfData:
    """The key is what the data says; it raises for data that says so."""

    def __init__(self, *, fixed: bool = False) -> None:
        self._fixed = fixed

    def key(self, event: Event[Any]) -> str | None:
        """Return the key, or raise."""
        if self._fixed:
            return str(event.data["key"])[:20].replace("\0", "")
        if event.data.get("raises"):
            raise LookupError("no customer here")
        return str(event.data["key"])


def counting(name: str, partition_by: Partitioner | None, group: str = "counting") -> Any:
    """Return a projector that counts events by key and writes down their versions."""

    @projector(name, partition_by=partition_by, retry=AT_ONCE, group=group)
    class Counting:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute(
                "create table if not exists seen"
                " (place bigint generated always as identity, name text, key text, stream text, version int)"
            )

        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await db.execute(
                "insert into seen (name, key, stream, version) values ($1, $2, $3, $4)",
                name,
                key,
                event.stream,
                event.version,
            )

    return Counting()


async def skip(database: Database, name: str, position: int) -> str:
    """Do what `headrace skip` does, without a process of its own; returns the refusal, '' when there is none."""
    async with open_operations(read_settings({"dsn": database.dsn})) as operations:
        try:
            await operations.skipping.pass_over(name, Position(position), "me@here", "a test order")
        except UsageError as error:
            return str(error)
    return ""


# --------------------------------------------------------------------------------------------------------------- keys


async def test_keys_of_any_text_stay_apart(database: Database) -> None:
    """PAR-19, L59: case, blanks, composed and decomposed forms, four bytes, right to left, 1,000 bytes: each is one
    partition with its own events in order, whether PostgreSQL or Python makes the key.
    """
    log = [(key, "T", {"key": key}) for _ in range(3) for key in KEYS]
    await append(database, *log)
    app = App(counting("in_store", Stream()), counting("in_python", OfData()), name="shop")
    async with opened(app, database) as scene:
        await scene.engine.setup()
        result = await scene.engine.boot()
        assert (result.processed, result.errors) == (2 * len(log), ())
    for name in ("in_store", "in_python"):
        found = await rows(
            database, "select key, array_agg(version order by place) from seen where name = $1 group by 1", name
        )
        assert dict(found) == {key: [1, 2, 3] for key in KEYS}
    assert await value(database, "select count(*) from headrace.partitions") == 2 * len(KEYS)
    await assert_sound(database)


async def test_any_length_by_its_hash(database: Database) -> None:
    """`Hashed` takes keys of any length: in PostgreSQL, and around a partitioner in Python; both make the same."""
    streams = ["x" * 50_000, "x" * 50_001, "y" * 5000, ""]
    await append(database, *((stream, "T", {"key": stream}) for _ in range(2) for stream in streams))
    app = App(counting("in_store", Hashed(Stream())), counting("in_python", Hashed(OfData())), name="shop")
    async with opened(app, database) as scene:
        await scene.engine.setup()
        result = await scene.engine.boot()
        assert (result.processed, result.errors) == (16, ())
    made = await rows(database, "select key, stream, array_agg(version order by place) from seen group by name, 1, 2")
    assert Counter(made_key for made_key, _, _ in made) == Counter({row[0]: 2 for row in made})
    assert {(stream, tuple(versions)) for _, stream, versions in made} == {(stream, (1, 2)) for stream in streams}
    assert {len(made_key) for made_key, _, _ in made} == {64}
    await assert_sound(database)


def test_a_name_with_the_separator_is_refused() -> None:
    """`#` separates a subscriber from a key in addresses, so no subscriber may have it in its name."""
    with pytest.raises(BadName, match="'#'"):
        projector("orders#eu", partition_by=Stream())


# --------------------------------------------------------------------------------------- events without a usable key

BAD = {
    "too long": ("x" * 1001, {"key": "fine"}, "1,001 UTF-8 bytes"),
    "too long in Python": ("s", {"key": "\u00e9" * 501}, "1,002 UTF-8 bytes"),
    "NUL": ("s", {"key": "a", "nul": True}, "NUL"),
    "raises": ("s", {"key": "a", "raises": True}, "LookupError: no customer here"),
}


class WithNul(OfData):
    """Some keys hold a NUL."""

    def key(self, event: Event[Any]) -> str | None:
        """Return the key."""
        made = super().key(event)
        return f"{made}\0" if event.data.get("nul") and not self._fixed else made


@pytest.mark.parametrize("case", list(BAD))
async def test_an_event_without_a_key_stops_its_main_before_it(database: Database, case: str) -> None:
    """The main stands before the event and says position, type and fix, while other subscriptions go on; with a fixed
    partitioner a new process goes on by itself, in order.
    """
    stream, data, problem = BAD[case]
    broken: Partitioner = Stream() if case == "too long" else WithNul()
    fixed: Partitioner = Hashed(Stream()) if case == "too long" else WithNul(fixed=True)
    before = await append(database, *(("s", "T", {"key": "a"}) for _ in range(3)))
    (bad,) = await append(database, (stream, "Wrong  type", data))
    await append(database, *(("s", "T", {"key": "a"}) for _ in range(2)))
    other = counting("other", None)
    async with serving(App(counting("stands", broken), other, name="shop"), database, options(retry_min=90)) as scene:
        await scene.saw(MainStopped)
        await until_value(database, "select count(*) from seen where name = 'other'", 6)
        await until_value(database, "select status from headrace.subscriptions where name = 'other'", "active")
    reason = await value(database, "select reason from headrace.subscriptions where name = 'stands'")
    for part in (f"at position {bad} of type 'Wrong  type'", problem, f"headrace skip stands --position {bad}"):
        assert part in reason
    assert await value(database, "select status from headrace.subscriptions where name = 'stands'") == "error"
    assert await value(database, "select max(position) from headrace.cursors") == before[-1]
    async with serving(App(counting("stands", fixed), other, name="shop"), database):
        await until_value(database, "select count(*) from seen where name = 'stands'", 6)
        await until_value(database, "select status from headrace.subscriptions where name = 'stands'", "active")
    handled = await rows(
        database,
        "select key, array_agg(version order by place) from seen where name = 'stands' and stream = 's' group by 1",
    )
    assert all(versions == sorted(versions) for _, versions in handled)
    assert sorted(version for _, versions in handled for version in versions) == list(
        range(1, 6 if stream != "s" else 7)
    )
    await assert_sound(database)


async def test_skip_passes_the_event_over(database: Database) -> None:
    """`headrace skip` passes exactly the next wanted event over, audited, while the main stands; a running worker goes
    on behind it by itself. Any other position, and a main that is at work, are refused.
    """
    positions = await append(
        database,
        ("a", "T", {"key": "a"}),
        ("a", "T", {"key": "a", "raises": True}),
        ("a", "T", {"key": "a"}),
        ("b", "T", {"key": "b", "raises": True}),
        ("a", "T", {"key": "a"}),
    )
    app = App(counting("skipping", OfData()), name="shop")
    quick = options(retry_min=1.0, retry_max=1.0)
    async with serving(app, database, quick) as scene:
        await scene.saw(MainStopped)
        for wrong in (positions[0], positions[2], positions[3], positions[-1] + 100):
            # In the moment of a retry the main counts as running; that is refused as well.
            refused = await skip(database, "skipping", wrong)
            assert "is not the next event" in refused or "only while the subscription stands still" in refused
        for position in (positions[1], positions[3]):
            stands = f"status = 'error' and reason like '%position {position} %'"
            await until_value(database, f"select {stands} from headrace.subscriptions", True)
            await until(partial(_skipped, database, position), message=f"{position} is skipped")
        await until_value(database, "select count(*) from seen", 3)
        await until_value(database, "select status from headrace.subscriptions", "active")
        assert "only while the subscription stands still" in await skip(database, "skipping", positions[-1] + 1)
    assert await rows(database, "select version from seen order by place") == [(1,), (3,), (4,)]
    audit = await rows(database, "select verb, subscription, position, who, why from headrace.audit order by id")
    assert audit == [("skip", "skipping", p, "me@here", "a test order") for p in (positions[1], positions[3])]
    await assert_sound(database)


async def _skipped(database: Database, position: int) -> bool:
    return await skip(database, "skipping", position) == ""


async def test_skip_on_the_command_line(database: Database) -> None:
    """The command says what it did, and what it cannot do with exit code 2; a worker that starts goes on behind it."""
    (position,) = await append(database, ("a", "T", {"key": "a", "raises": True}))
    await append(database, ("a", "T", {"key": "a"}))
    app = App(counting("skipping", OfData()), name="shop")
    async with opened(app, database) as scene:
        await scene.engine.setup()
        result = await scene.engine.boot()
        assert [error.key for error in result.errors] == [None]

    def command(*arguments: str) -> Outcome:
        return headrace("skip", *arguments, dsn=database.dsn)

    done = command("skipping", "--position", str(position), "--why", "no customer")
    again = command("skipping", "--position", str(position))
    unknown = command("nobody", "--position", "1")
    assert (done.code, done.out) == (0, f"skipping: event {position} is passed over, a worker goes on behind it\n")
    assert (again.code, f"{position} is not the next event" in again.err) == (2, True)
    assert (unknown.code, "there is no subscription 'nobody'" in unknown.err) == (2, True)
    async with serving(app, database):
        await until_value(database, "select array_agg(version) from seen", [2])
    assert await rows(database, "select verb, why from headrace.audit") == [("skip", "no customer")]
    await assert_sound(database)


# --------------------------------------------------------------------------------------------------------- hostile data

HOSTILE = {"NUL": r'{"text": "a\u0000b"}', "lone surrogate": r'{"text": "a\ud800b"}'}


@pytest.mark.parametrize("kind", list(HOSTILE))
async def test_our_table_refuses_hostile_data_and_import_names_the_line(database: Database, kind: str) -> None:
    """L59: NUL and half of a surrogate pair cannot be stored: neither by plain SQL nor by import, which names the line
    and stores nothing of its chunk.
    """
    async with database.connection() as connection:
        with pytest.raises(asyncpg.PostgresError):
            await connection.execute(
                "insert into headrace.events (stream, version, type, data) values ('s', 1, 'T', $1)", HOSTILE[kind]
            )
    good = json.dumps({"stream": "s", "type": "T", "data": {}}) + "\n"
    bad = '{"stream": "s", "type": "T", "data": ' + HOSTILE[kind] + "}\n"
    outcome = headrace("import", "-", dsn=database.dsn, stdin=(good * 4 + bad + good).encode())
    assert outcome.code == 2
    assert "line 5" in outcome.err
    assert await value(database, "select count(*) from headrace.events") == 0
    assert headrace("import", "-", dsn=database.dsn, stdin=(good * 5).encode()).code == 0
    await assert_sound(database)


@pytest.mark.parametrize("column", ["json", "text"])
async def test_hostile_data_of_a_mapped_table_parks_its_key_at_most(database: Database, column: str) -> None:
    """L59: another store's column may hold what PostgreSQL refuses as jsonb, or what is no JSON at all: whoever reads
    or writes it parks that key, and no other of the group.
    """
    await execute(
        database,
        f"create table log (id bigserial primary key, stream text, kind text, body {column})",
        "create table texts (key text, text text)",
    )
    bodies = {
        "nul": HOSTILE["NUL"],
        "half": HOSTILE["lone surrogate"],
        "ok": '{"text": "fine"}',
        "other": '{"text": ""}',
    }
    if column == "text":
        bodies |= {"no json": "{'text'", "empty": "", "deep": "[" * 100_000}

    @projector("mapped", partition_by=Stream(), retry=AT_ONCE)
    class Mapped:
        @on()
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await db.execute("insert into texts values ($1, $2)", key, event.data["text"])

    for _ in range(2):
        for stream, body in bodies.items():
            async with database.connection() as connection:
                await connection.execute("insert into log (stream, kind, body) values ($1, 'T', $2)", stream, body)
    mapping = TableMapping("log", position="id", type="kind", data="body")
    async with opened(App(Mapped(), name="shop", events=mapping), database) as scene:
        await scene.engine.setup()
        result = await scene.engine.boot()
        assert (result.processed, result.has_pending) == (4, False)
    parked = await rows(
        database, "select p.key from headrace.failures f join headrace.partitions p on p.id = f.part order by 1"
    )
    assert {key for (key,) in parked} == bodies.keys() - {"ok", "other"}
    assert await rows(database, "select * from texts order by 1") == [("ok", "fine")] * 2 + [("other", "")] * 2
    await assert_sound(database)


async def test_deep_and_long_data_pass(database: Database) -> None:
    """900 levels and strings of 1 MB go from import to the read model, 3,000 levels as long as nobody decodes
    them.
    """
    deep = "[" * 900 + "1" + "]" * 900
    long = "\U0001f600" * 250_000
    lines = [
        '{"stream": "deep", "type": "T", "data": {"deep": ' + deep + "}}",
        json.dumps({"stream": "long", "type": "T", "data": {"long": long}}),
        json.dumps({"stream": "long", "type": "T", "data": {"long": long}}, ensure_ascii=False),
    ]

    @projector("sizes", partition_by=Stream(), retry=AT_ONCE)
    class Sizes:
        @setup
        async def create(self, db: Connection) -> None:
            await db.execute("create table sizes (key text, size int)")

        @on("T")
        async def see(self, event: Event, key: PartitionKey, db: Connection) -> None:
            size = len(event.data["long"]) if key == "long" else len(json.dumps(event.data["deep"]))
            await db.execute("insert into sizes values ($1, $2)", key, size)

        @on("Deeper")
        async def pass_by(self, event: Event, key: PartitionKey, db: Connection) -> None:
            await db.execute("insert into sizes values ($1, 0)", key)

    outcome = headrace("import", "-", dsn=database.dsn, stdin="\n".join(lines).encode())
    assert outcome.code == 0, outcome
    await append(database, ("deeper", "Deeper", '{"deep": ' + "[" * 3000 + "]" * 3000 + "}"))
    async with opened(App(Sizes(), name="shop"), database) as scene:
        await scene.engine.setup()
        result = await scene.engine.boot()
        assert (result.processed, result.errors) == (4, ())
    assert await rows(database, "select * from sizes order by key") == [
        ("deep", 1801),
        ("deeper", 0),
        ("long", 250_000),
        ("long", 250_000),
    ]
    await assert_sound(database)
