"""Named SQL from ``store/sql``, ready to send.

A file holds queries, each opened by ``-- name: NAME`` and one comment line that says why it exists.
The schema is written as the prefix ``headrace.`` and replaced here by the configured one. Tokens in
double braces take fragments of SQL that this package made itself: a value from outside never gets
into the text of a statement, only into its parameters.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from headrace.domain.errors import BadName

DEFAULT_SCHEMA = "headrace"

_OPENING = re.compile(r"^-- name: *(\S+) *$", re.MULTILINE)
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TOKEN = re.compile(r"\{\{ *([a-z_]+) *\}\}")
# Only where an identifier follows, and never as the tail of a longer word or of another qualifier.
_PREFIX = re.compile(r"""(?<![\w."$-])headrace\.(?=[a-z_"])""")
_PREFIX_OR_TOKEN = re.compile(f"{_TOKEN.pattern}|{_PREFIX.pattern}")

_BODY_MARKS = ("$$", "$q$")
"""What functions of the migrations are written between: a name that holds one would end the function's text."""


class Fragment(str):
    """A piece of SQL that this package wrote: a relation, an expression, a quoted identifier."""

    __slots__ = ()


def quoted(identifier: str) -> Fragment:
    """Return an identifier as PostgreSQL quotes it.

    Raises:
        BadName: the identifier is empty or holds a NUL.

    """
    if not identifier or "\x00" in identifier:
        raise BadName(f"{identifier!r} cannot be the name of a schema, table, column or role")
    return Fragment('"' + identifier.replace('"', '""') + '"')


def qualify(sql: str, schema: str) -> str:
    """Replace the schema prefix ``headrace.`` by the quoted ``schema``, also where a literal begins with it.

    Raises:
        BadName: the name cannot stand in the body of a function.

    """
    return _PREFIX.sub(lambda match: _prefix(match, schema), sql)


def _prefix(match: re.Match[str], schema: str) -> str:
    if any(mark in schema for mark in _BODY_MARKS):
        raise BadName(f"{schema!r} cannot be the name of the schema: it holds {' or '.join(_BODY_MARKS)}")
    prefix = quoted(schema) + "."
    in_literal = match.start() > 0 and match.string[match.start() - 1] == "'"
    return prefix.replace("'", "''") if in_literal else prefix


def _sql_files() -> Iterator[Traversable]:
    folder = resources.files("headrace.store") / "sql"
    return iter(sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name))


def split_queries(file: str, text: str) -> dict[str, str]:
    """Return the named queries of one file.

    Raises:
        ValueError: text before the first name, a bad or repeated name, no comment that says why, or
            no statement.

    """
    found: dict[str, str] = {}
    parts = _OPENING.split(text)
    if re.sub(r"--.*", "", parts[0]).strip():
        raise ValueError(f"{file}: SQL before the first `-- name:`")
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        if not _NAME.fullmatch(name):
            raise ValueError(f"{file}: {name!r} is no query name (small letters, digits, underscores)")
        if name in found:
            raise ValueError(f"{file}: query {name!r} is there twice")
        comment, _, statement = body.lstrip("\n").partition("\n")
        if not comment.startswith("-- "):
            raise ValueError(f"{file}: query {name!r} lacks the comment line that says why it exists")
        if not statement.strip():
            raise ValueError(f"{file}: query {name!r} is empty")
        found[name] = statement.strip().removesuffix(";").rstrip()
    return found


@cache
def _all_queries() -> dict[str, str]:
    found: dict[str, str] = {}
    for file in _sql_files():
        for name, statement in split_queries(file.name, file.read_text("utf-8")).items():
            if name in found:
                raise ValueError(f"{file.name}: query {name!r} exists in another file already")
            found[name] = statement
    return found


class Queries:
    """The named queries for one schema.

    ``queries.get("append")`` and ``queries.append`` are the same text; ``queries.render("read",
    events=fragment)`` fills tokens. Rendered texts are kept, so that the driver sees equal strings.
    """

    def __init__(self, schema: str = DEFAULT_SCHEMA) -> None:
        self.schema = schema
        self._quoted = quoted(schema)
        self._rendered: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}

    def get(self, name: str) -> str:
        """Return a query that has no tokens.

        Raises:
            LookupError: no query of that name, or it needs fragments.

        """
        return self.render(name)

    def __getattr__(self, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self.get(name)
        except LookupError as error:
            raise AttributeError(str(error)) from error

    def fragment(self, name: str, **fragments: Fragment) -> Fragment:
        """Return a rendered query for use as a fragment of another one."""
        return Fragment(self.render(name, **fragments))

    def render(self, name: str, **fragments: Fragment) -> str:
        """Return a query with every token filled.

        Raises:
            LookupError: no query of that name, a token without a fragment, or the reverse.
            TypeError: a fragment is not a :class:`Fragment`, so its origin is unknown.

        """
        for token, value in fragments.items():
            if not isinstance(value, Fragment):
                raise TypeError(f"query {name!r}: {token!r} must be a Fragment, never a value from outside")
        key = (name, tuple(sorted(fragments.items())))
        if key not in self._rendered:
            self._rendered[key] = self._filled(name, fragments)
        return self._rendered[key]

    def _filled(self, name: str, fragments: dict[str, Fragment]) -> str:
        known = _all_queries()
        if name not in known:
            raise LookupError(f"no query {name!r} in store/sql")
        text = known[name]
        tokens = set(_TOKEN.findall(text))
        if tokens != set(fragments):
            raise LookupError(f"query {name!r} has the tokens {sorted(tokens)}, given were {sorted(fragments)}")
        # In one pass: a fragment is final and may hold somebody else's names, and a schema may look like a token.
        return _PREFIX_OR_TOKEN.sub(
            lambda match: fragments[match[1]] if match[1] else _prefix(match, self.schema), text
        )
