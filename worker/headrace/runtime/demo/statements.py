"""The demonstration's SQL, by name, from the files beside it."""

from functools import cache
from importlib import resources

from headrace.store.queries import split_queries


@cache
def statement(name: str) -> str:
    """Return a named statement.

    Raises:
        LookupError: there is none of that name.

    """
    folder = resources.files(__package__) / "sql"
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        found = split_queries(file.name, file.read_text("utf-8"))
        if name in found:
            return found[name]
    raise LookupError(f"no statement {name!r}")
