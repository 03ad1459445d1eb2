"""A disk of a few hundred kilobytes, as a tablespace of a cluster: what a full disk does, without filling one."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.embedded.cluster import Cluster

KIB = 1024


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A file system of its own."""

    path: Path

    @property
    def create(self) -> str:
        """The statement that makes it the tablespace `small`."""
        return f"create tablespace small location '{self.path}'"

    def resize(self, kib: int) -> None:
        """Make room."""
        _mount("-o", f"remount,size={kib}k", str(self.path))


@contextmanager
def small_disk(cluster: Cluster, kib: int) -> Iterator[SmallDisk]:
    """Yield a disk of so many KiB for the server of a cluster; what is on it must be dropped before the end.

    Skips where this account may not mount one.
    """
    path = cluster.folder / "small-disk"
    path.mkdir()
    try:
        try:
            _mount("-t", "tmpfs", "-o", f"size={kib}k,mode=0700", "tmpfs", str(path))
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("no file system can be mounted here: run the tests as root")
        try:
            owner = (cluster.folder / "data").stat()
            shutil.chown(path, owner.st_uid, owner.st_gid)
            yield SmallDisk(path)
        finally:
            subprocess.run(["umount", "--lazy", str(path)], check=True)
    finally:
        path.rmdir()


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)
