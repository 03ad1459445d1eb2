"""Which files of a project were saved: looked at by their times, again and again.

A system's own watch would also hear the database in `.headrace/` and every file of an environment, since both lie in
the project, and it misses what is saved on the other side of a mount. A look at a thousand files takes milliseconds.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist", "venv", "env"})
SUFFIX = ".py"

Stamps = Mapping[Path, tuple[int, int]]
"""Time of the last change (ns) and size of each file."""


def stamps(folder: Path, others: Iterable[Path] = ()) -> Stamps:
    """Return the stamps of the Python files below a folder, hidden and made ones left out, and of some others."""
    found = {}
    for path in (*_python_files(folder), *others):
        try:
            state = path.stat()
        except OSError:
            continue  # gone since it was listed
        found[path] = (state.st_mtime_ns, state.st_size)
    return found


def changed(before: Stamps, after: Stamps) -> list[Path]:
    """Return the files that are new, gone or different, in order."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _python_files(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in LEFT_OUT]
        for name in files:
            if name.endswith(SUFFIX):
                yield Path(place, name)
