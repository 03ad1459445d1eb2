"""What a process family can leave on a machine: processes, ports, files, shared memory, users, changed rights.

Everything that a family starts is found by one folder, which all of it has in its environment, its command line or as
its current folder. So nothing of others who use the machine at the same time is counted.
"""

import os
import pwd
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Machine:
    """What must be the same before and after: the users, and the rights of folders that are not ours."""

    users: tuple[pwd.struct_passwd, ...]
    rights: tuple[tuple[str, int, int, int], ...]

    @staticmethod
    def now(*folders: Path) -> "Machine":
        """Return the machine as it is; these folders, what is in them, and all above them are looked at."""
        looked_at = {path for folder in folders for path in (folder, *folder.parents, *folder.iterdir())}
        rights = []
        for path in sorted(looked_at):
            stat = path.lstat()
            rights.append((str(path), stat.st_mode, stat.st_uid, stat.st_gid))
        return Machine(tuple(pwd.getpwall()), tuple(rights))


@dataclass(frozen=True, slots=True)
class Family:
    """Processes by id, with the ports they listened on and the shared memory they had."""

    pids: frozenset[int] = frozenset()
    ports: frozenset[int] = frozenset()
    segments: frozenset[str] = frozenset()


def family_of(folder: Path) -> Family:
    """Return all that belongs to a folder now."""
    pids, ports, segments = set[int](), set[int](), set[str]()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if not _belongs(process, str(folder)):
                continue
            pids.add(process.pid)
            ports |= {one.laddr.port for one in process.net_connections("inet") if one.status == "LISTEN"}
            maps = Path(f"/proc/{process.pid}/maps").read_text()
            segments |= {word for word in maps.split() if word.startswith("/dev/shm/")}
    return Family(frozenset(pids), frozenset(ports), frozenset(segments))


def left_of(family: Family, folder: Path) -> list[str]:
    """Return, in words, what is left of a family and in its folder."""
    now = family_of(folder)
    left = [f"process {pid}: {_command_of(pid)}" for pid in now.pids]
    left += [f"port {port}" for port in family.ports if _answers(port)]
    left += [f"shared memory {path}" for path in family.segments if Path(path).exists()]
    left += [f"shared memory of process {pid}" for pid in _owners_of_sysv_memory() & family.pids]
    return left + [f"file {path}" for path in folder.iterdir()]


def _belongs(process: psutil.Process, folder: str) -> bool:
    if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
        return False
    if any(folder in word for word in process.cmdline()) or process.cwd().startswith(folder):
        return True
    return any(folder in value for value in process.environ().values())


def _command_of(pid: int) -> str:
    with suppress(psutil.Error):
        return " ".join(psutil.Process(pid).cmdline())
    return "gone meanwhile"


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _owners_of_sysv_memory() -> set[int]:
    path = Path("/proc/sysvipc/shm")
    lines = path.read_text().splitlines()[1:] if path.exists() else []
    return {int(line.split()[4]) for line in lines}
