"""Keys made by Python and by PostgreSQL are the same, byte for byte, for every built-in partitioner."""

import random
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.domain.errors import BadDeclaration
from headrace.domain.event import Event
from headrace.domain.ids import Position
from headrace.partitioning.keys import (
    Bucket,
    Hashed,
    Partitioner,
    PartitionerKind,
    PartitionerSpec,
    Stream,
    Tag,
    spec_of,
)
from headrace.store.partition_keys import key_expression, text_literal
from headrace.store.queries import Fragment, Queries
from support.databases import Database

SEED = 20260101
ROWS = 4000
# Composed and decomposed forms, cases that other alphabets fold, right-to-left, the last of plane 0, four bytes.
ALPHABET = ["A", "a", "B", "b", "é", "e\u0301", "ß", "ẞ", "ı", "İ", "ﬀ", "ש", "م", "\u200f", "\ue000", "\uffee", "🦊"]
ALPHABET += ["\U0010ffff", "0", "9", " ", "_", "-", ":", "#", "%", "'", '"', "\\", "{{of}}", "$1", "\n", "\x01"]
PREFIXES = [
    "course",
    "Course",
    "courseware",
    "cours",
    "coursé",
    "course\u0301",
    "org:course",
    "🦊",
    "م",
    " ",
    "'",
    "\\",
]
HOSTILE = ["'; drop table keyed; --", "{{of}}", "{{prefix}}", "{{n}}", "headrace.events", "$1", "\\'", "E'", "%s", "--"]


@dataclass(frozen=True)
class Row:
    """What a partitioner looks at."""

    stream: str
    tags: tuple[str | None, ...] | None


def generated_rows() -> list[Row]:
    """Return a few rows that matter by themselves and thousands of random ones, the same in every run."""
    chance = random.Random(SEED)

    def text(longest: int) -> str:
        return "".join(chance.choices(ALPHABET, k=chance.randrange(longest)))

    def tag() -> str | None:
        shape = chance.random()
        if shape < 0.05:
            return chance.choice([None, "", ":", ":7"])
        return f"{chance.choice(PREFIXES + HOSTILE)}{chance.choice([':', ':', ':', ''])}{text(4)}"

    rows = [Row("", ()), Row("", None), Row("x" * 5000, ("course:" + "y" * 5000,)), Row("A", ("course:7", "course:07"))]
    rows += [Row(text(12), tuple(tag() for _ in range(chance.randrange(7)))) for _ in range(ROWS)]
    return rows


PARTITIONERS: list[Partitioner] = [
    Stream(),
    *(Tag(prefix) for prefix in ["", *PREFIXES, *HOSTILE]),
    *(Bucket(Stream(), n) for n in (1, 2, 3, 16, 64, 97, 65_537, 1_000_000)),
    Bucket(Tag("course"), 7),
    Hashed(Stream()),
    Hashed(Tag("course")),
    Hashed(Bucket(Hashed(Tag("course")), 1000)),
    Bucket(Tag("{{of}}"), 5),
    Bucket(Hashed(Tag("headrace.events")), 999_983),
]


async def keys_in_sql(database: Database, rows: list[Row], partitioner: Partitioner, column: str = "text") -> list[Any]:
    """Return the keys of the rows as PostgreSQL makes them."""
    spec = spec_of(partitioner)
    assert spec is not None
    expression = key_expression(spec, Queries("Some Schema"))
    array = column.replace("text", "text[]", 1)
    async with database.connection() as connection:
        await connection.execute(f"create temp table keyed (n int, stream {column}, tags {array})")
        await connection.copy_records_to_table(
            "keyed", records=[(number, row.stream, row.tags) for number, row in enumerate(rows)]
        )
        return [record[0] for record in await connection.fetch(f"select {expression} from keyed e order by n")]


def key_in_python(partitioner: Partitioner, row: Row) -> str | None:
    """Return the key of a row as Python makes it."""
    tags: Any = row.tags or ()
    return partitioner.key(
        Event(position=Position(1), stream=row.stream, version=1, type="T", raw_data="{}", tags=tags)
    )


@pytest.mark.both_versions
async def test_python_and_sql_agree(empty_database: Database) -> None:
    """PAR-6: on thousands of generated rows each built-in partitioner makes the same key in both places."""
    rows = generated_rows()
    matched = 0
    for partitioner in PARTITIONERS:
        expected = [key_in_python(partitioner, row) for row in rows]

        assert await keys_in_sql(empty_database, rows, partitioner) == expected, partitioner

        matched += sum(key is not None for key in expected)
    assert matched > ROWS * 10, "too few rows matched to prove anything"


async def test_collation_of_a_mapped_column_does_not_matter(empty_database: Database) -> None:
    """PAR-19: with a column that takes `A` for `a`, and sorts by language, keys are still compared by byte."""
    async with empty_database.connection() as connection:
        if not await connection.fetchval("select exists (select from pg_collation where collprovider = 'i')"):
            pytest.skip("this PostgreSQL was built without ICU: install the system's PostgreSQL")
        await connection.execute(
            "create collation blind (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
        )
    rows = [*generated_rows()[:500], Row("A", ("course:a", "course:B")), Row("a", ("COURSE:1",))]
    for partitioner in (Stream(), Tag("course"), Bucket(Tag("course"), 16), Hashed(Stream())):
        keys = await keys_in_sql(empty_database, rows, partitioner, 'text collate "blind"')

        assert keys == [key_in_python(partitioner, row) for row in rows], partitioner

    async with empty_database.connection() as connection:
        expression = key_expression(PartitionerSpec(PartitionerKind.STREAM), Queries())
        grouped = await connection.fetchval(
            f"""select count(distinct {expression}) from (values ('A'), ('a')) v (stream)
            cross join lateral (select v.stream collate "blind" as stream, '{{}}'::text[] as tags) e"""
        )
    assert grouped == 2


async def test_literal_means_the_same_with_old_string_rules(empty_database: Database) -> None:
    """A prefix is read right whatever standard_conforming_strings says, and runs no SQL of its own."""
    async with empty_database.connection() as connection:
        for setting in ("on", "off"):
            await connection.execute(f"set standard_conforming_strings = {setting}; set escape_string_warning = off")
            for text in [*PREFIXES, *HOSTILE, *ALPHABET, ""]:
                assert await connection.fetchval(f"select {text_literal(text)}") == text


def test_literal_holds_nothing_that_sql_or_templates_know() -> None:
    """Only letters, digits, `_`, `-` and escapes lie between the quotes."""
    for text in [*PREFIXES, *HOSTILE, *ALPHABET]:
        inner = text_literal(text).removeprefix("E'").removesuffix("'")

        assert not set(inner) & set("'\"{}$.:; %"), text
        assert inner.isascii()


@pytest.mark.parametrize("text", ["nul\0", "lone\ud800"])
def test_literal_of_what_postgresql_cannot_hold_is_refused(text: str) -> None:
    """NUL and lone surrogates never get into a statement."""
    with pytest.raises(BadDeclaration, match="cannot be part of a text"):
        text_literal(text)


@pytest.mark.parametrize(
    "spec",
    [
        PartitionerSpec(PartitionerKind.TAG),
        PartitionerSpec(PartitionerKind.BUCKET, buckets=4),
        PartitionerSpec(PartitionerKind.BUCKET, of=PartitionerSpec(PartitionerKind.STREAM)),
        PartitionerSpec(PartitionerKind.HASHED),
    ],
)
def test_incomplete_spec_is_refused(spec: PartitionerSpec) -> None:
    """A spec that lacks what its kind needs gives no half-filled SQL."""
    with pytest.raises(BadDeclaration, match="lacks"):
        key_expression(spec, Queries())


def test_expression_is_a_fragment() -> None:
    """What is made here may be put into other queries, so it is marked as our own SQL."""
    spec = spec_of(Bucket(Hashed(Tag("course")), 4))
    assert spec is not None

    assert type(key_expression(spec, Queries())) is Fragment
