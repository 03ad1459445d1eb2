"""The SQL of the benchmarks: named statements in the `.sql` files of this folder, never text in Python."""

from functools import cache
from pathlib import Path

from headrace.store.queries import split_queries

_FOLDER = Path(__file__).parent


@cache
def queries_of(file: str) -> dict[str, str]:
    """Return the named statements of one file, given without its suffix.

    Raises ValueError if the file is not written as the product's own are.
    """
    path = _FOLDER / f"{file}.sql"
    return split_queries(path.name, path.read_text("utf-8"))
