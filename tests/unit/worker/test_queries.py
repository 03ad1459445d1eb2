"""Named SQL: names, schema prefix, fragments; and a look at what is really in store/sql."""

import re
from importlib import resources

import pytest

from headrace.domain.errors import BadName
from headrace.store import queries
from headrace.store.migrate import grants, known_migrations
from headrace.store.queries import Fragment, Queries, qualify, quoted, split_queries

WHY = "-- Why it exists.\n"


def test_the_prefix_becomes_the_quoted_schema() -> None:
    """The schema is replaced wherever it qualifies a name, also in strings that name a relation."""
    sql = "select headrace.f('headrace.events'::regclass) from headrace.events e, headrace.\"x\""
    assert qualify(sql, 'my "own"') == (
        'select "my ""own""".f(\'"my ""own""".events\'::regclass) from "my ""own""".events e, "my ""own"""."x"'
    )


@pytest.mark.parametrize(
    "sql",
    ["run `headrace migrate`", "the headrace. Next", "a.headrace.b", "xheadrace.events", '"headrace".events',
     "headrace_events", "$headrace.events", "headrace.", "pg-headrace.a"],
)  # fmt: skip
def test_nothing_else_is_taken_for_the_prefix(sql: str) -> None:
    """Only the schema in front of an identifier is a prefix; words, longer names and other qualifiers stay."""
    assert qualify(sql, "other") == sql


def test_a_schema_cannot_break_out_of_its_quotes() -> None:
    """Whatever the schema is called, it stays one identifier."""
    assert quoted('a"; drop table x; --') == '"a""; drop table x; --"'
    for bad in ("", "a\x00b"):
        with pytest.raises(BadName):
            quoted(bad)


def test_queries_are_split_by_name() -> None:
    """A query goes from its name to the next one, without its comment and last semicolon."""
    text = f"-- about the file\n\n-- name: one\n{WHY}select 1\n  where true;\n\n-- name: two_2\n{WHY}select ';';\n"
    assert split_queries("f.sql", text) == {"one": "select 1\n  where true", "two_2": "select ';'"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"select 1;\n-- name: a\n{WHY}select 1", "before the first"),
        (f"-- name: a-b\n{WHY}select 1", "no query name"),
        (f"-- name: a\n{WHY}select 1\n-- name: a\n{WHY}select 2", "twice"),
        ("-- name: a\nselect 1", "lacks the comment"),
        (f"-- name: a\n{WHY}\n", "empty"),
    ],
)
def test_a_bad_file_is_refused(text: str, words: str) -> None:
    """Each fault of a file is named."""
    with pytest.raises(ValueError, match=words):
        split_queries("f.sql", text)


def test_one_name_in_two_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are unique over all files."""

    class File:
        def __init__(self, name: str) -> None:
            self.name = name

        def read_text(self, encoding: str) -> str:
            return f"-- name: same\n{WHY}select 1"

    monkeypatch.setattr(queries, "_sql_files", lambda: iter([File("a.sql"), File("b.sql")]))
    queries._all_queries.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"b\.sql: query 'same' exists in another file"):
            Queries().get("same")
    finally:
        queries._all_queries.cache_clear()


def test_tokens_take_fragments_of_this_package_only() -> None:
    """A plain text may come from outside: it never gets into a statement; missing and surplus tokens are named."""
    found = Queries("shop")
    assert found.render("head_position", events=Fragment("x.y")).count("x.y e") == 1
    with pytest.raises(TypeError, match="never a value from outside"):
        found.render("head_position", events="x.y")  # type: ignore[arg-type]
    with pytest.raises(LookupError, match="events"):
        found.get("head_position")
    with pytest.raises(LookupError, match="surplus"):
        found.render("head_position", events=Fragment("x"), surplus=Fragment("y"))
    with pytest.raises(LookupError, match="no query 'unknown'"):
        found.get("unknown")
    with pytest.raises(AttributeError, match="no query 'unknown'"):
        _ = found.unknown


def test_a_fragment_keeps_somebody_elses_schema() -> None:
    """Names in a fragment are final: a mapped table in a schema called headrace is not ours."""
    text = Queries("shop").render("head_position", events=Fragment("headrace.log"))
    assert "headrace.log e" in text


def test_every_query_of_the_package_can_be_read() -> None:
    """All files parse, names are unique, and nothing is left of the prefix when another schema is used."""
    for name, text in queries._all_queries().items():
        qualified = qualify(re.sub(r"--[^\n]*", "", text), "shop")
        assert "headrace." not in qualified, name


def test_every_sql_file_is_in_the_package() -> None:
    """The wheel carries what the queries are read from."""
    folder = resources.files("headrace.store") / "sql"
    assert {"events.sql", "horizon.sql", "mapping.sql", "migrate.sql"} <= {file.name for file in folder.iterdir()}
    assert known_migrations()[0].name == "0001_pre_events"


def test_grants_quote_the_role() -> None:
    """The role is an identifier, whatever it is called; it may append, but neither change nor delete events."""
    text = grants('w"x', "shop")
    assert 'to "w""x"' in text
    assert 'grant select, insert on "shop".events to' in text
