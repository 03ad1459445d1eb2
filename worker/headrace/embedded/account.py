"""As whom PostgreSQL's programs run, and folders in which that account can work.

PostgreSQL refuses to run as root. Root therefore lends it an account that is there already, `postgres` or else
`nobody`: no user is ever made, and no right of an existing folder is ever changed. Everybody else runs it as
themselves.
"""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from headrace.domain.errors import UsageError
from headrace.embedded.programs import Programs

CANDIDATES = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class Account:
    """A user of the operating system; `borrowed` when it is not the one we run as."""

    name: str
    uid: int
    gid: int
    borrowed: bool

    def popen_arguments(self) -> dict[str, Any]:
        """Return the arguments of subprocess calls that make the child run as this account and nobody else."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.borrowed else {}

    def own(self, path: Path) -> None:
        """Give a file, or a folder with all that is in it, to this account."""
        if not self.borrowed:
            return
        os.chown(path, self.uid, self.gid, follow_symlinks=False)
        if path.is_dir() and not path.is_symlink():
            for folder, folders, files in os.walk(path):
                for name in (*folders, *files):
                    os.chown(Path(folder, name), self.uid, self.gid, follow_symlinks=False)

    def can_run(self, *command: str) -> bool:
        """Return whether this account gets a command to end well; the programs' folder may be closed to it."""
        try:
            done = subprocess.run(
                command, capture_output=True, check=False, timeout=30, cwd="/", **self.popen_arguments()
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0


def find_account() -> Account:
    """Return the account that PostgreSQL runs as.

    Raises UsageError when we are root and no unprivileged account exists.
    """
    if os.geteuid() != 0:
        return Account(name=str(os.geteuid()), uid=os.geteuid(), gid=os.getegid(), borrowed=False)
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid, borrowed=True)
    message = "PostgreSQL does not run as root, and there is no user `postgres` or `nobody`: run this as another user."
    raise UsageError(message)


class FolderMaker(Protocol):
    """Who makes a folder, and takes it back."""

    def make_folder(self, folder: Path) -> bool:
        """Make a folder, closed to others; tells whether it could be made."""
        ...

    def remove_folder(self, folder: Path) -> None:
        """Remove an empty folder."""
        ...


def make_folder(account: Account, maker: FolderMaker) -> Path:
    """Return a new, empty folder that belongs to the account, closed to others, outside every home.

    Raises UsageError when there is no temporary folder that the account can enter.
    """
    for base in _temporary_folders():
        folder = base / f"headrace-{secrets.token_hex(6)}"
        if not maker.make_folder(folder):
            continue
        account.own(folder)
        # A temporary folder may lie below one that is closed to the account.
        if account.can_run("/bin/sh", "-c", 'test -w "$1" && test -x "$1"', "sh", str(folder)):
            return folder
        maker.remove_folder(folder)
    message = f"No temporary folder is open to the user {account.name}: set TMPDIR to one that is."
    raise UsageError(message)


def _temporary_folders() -> Iterator[Path]:
    for base in dict.fromkeys((Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"))):  # noqa: S108
        if os.access(base, os.W_OK | os.X_OK):
            yield base


def reachable_programs(programs: Programs, account: Account, folder: Path) -> Programs:
    """Return programs that the account can run: the given ones, or else a copy of them in the folder.

    A virtual environment often lies in a home that is closed to others. The copy goes into the cluster's own folder,
    which only its account can write: nobody can plant or alter a program there, and it goes when the cluster goes.
    """
    if account.can_run(programs.path("initdb"), "--version"):
        return programs
    install = programs.bin_dir.parent
    copied = folder / "programs" / install.parent.name / install.name
    shutil.rmtree(folder / "programs", ignore_errors=True)
    for part in ("bin", "lib", "share"):
        if (install / part).is_dir():
            shutil.copytree(install / part, copied / part, symlinks=True)
    # The client programs find their libraries in a folder beside the package's, by a path relative to themselves.
    libraries = install.parent.parent / f"{install.parent.name}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, folder / "programs" / libraries.name, symlinks=True)
    account.own(folder / "programs")
    moved = Programs(bin_dir=copied / "bin", major=programs.major, kind=programs.kind)
    if not account.can_run(moved.path("initdb"), "--version"):
        message = f"The user {account.name} can run PostgreSQL neither from {programs.bin_dir} nor from a copy of it."
        raise UsageError(message)
    return moved
