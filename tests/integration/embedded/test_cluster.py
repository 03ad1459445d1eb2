"""A throw-away cluster works on both versions, survives what tests do to it, and leaves nothing behind."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import asyncpg
import psutil
import pytest

from headrace.domain.errors import Unavailable
from headrace.embedded import cluster as cluster_module
from headrace.embedded.cluster import Cluster
from support import databases
from support.databases import Database
from support.waiting import until, wait_until

pytestmark = pytest.mark.both_versions

type_of_make = Callable[..., Cluster]

OWNER = """
import sys
import tempfile
from headrace.embedded.cluster import Cluster
from headrace.embedded.programs import find_programs
cluster = Cluster(find_programs(sys.argv[1]))
cluster.start()
print(cluster.pid, cluster.folder, flush=True)
sys.stdin.read()
"""


async def value(dsn: str, statement: str) -> object:
    """Return what one statement answers."""
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def backends(cluster: Cluster, state: str) -> object:
    """Return how many sessions are in a state, this one included."""
    return await value(cluster.dsn(), f"select count(*) from pg_stat_activity where state = '{state}'")


def has_ended(pid: int) -> bool:
    """Return whether a process is gone, or at least done."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_serves_utf8_and_the_settings_that_the_engine_needs(empty_database: Database) -> None:
    """A database is UTF-8 with a Unicode-aware C.UTF-8 locale, and prepared transactions are on."""
    assert await value(empty_database.dsn, "show server_encoding") == "UTF8"
    assert await value(empty_database.dsn, "select upper('ä')") == "Ä"
    assert await value(empty_database.dsn, "show max_prepared_transactions") == "20"
    assert await value(empty_database.dsn, "show max_connections") == "200"


async def test_flushing_is_a_setting(cluster: Cluster, own_cluster: Cluster) -> None:
    """Clusters flush nothing unless asked to, and torn pages are guarded exactly where flushing is on."""
    assert [await value(cluster.dsn(), f"show {name}") for name in ("fsync", "full_page_writes")] == ["off", "off"]
    assert [await value(own_cluster.dsn(), f"show {name}") for name in ("fsync", "full_page_writes")] == ["on", "on"]


async def test_a_setting_may_hold_quotes(make_cluster: type_of_make) -> None:
    """Settings reach PostgreSQL as they are, quotes and backslashes included."""
    odd = make_cluster({"cluster_name": "it's \\ odd"})

    assert await value(odd.dsn(), "show cluster_name") == "it's \\ odd"


def test_listens_on_loopback_only_and_in_a_closed_folder(cluster: Cluster) -> None:
    """Nobody from outside reaches the server, and no other account sees its data or its socket."""
    server = psutil.Process(cluster.pid)
    listening = {connection.laddr.ip for connection in server.net_connections("inet") if connection.status == "LISTEN"}

    assert listening == {"127.0.0.1"}
    assert (cluster.folder.stat().st_mode & 0o077) == 0
    assert (cluster.folder / "socket").is_dir()
    assert server.username() != "root"


def test_the_port_is_not_one_that_outgoing_connections_get(cluster: Cluster) -> None:
    """The port lies below the ephemeral range, so that no client can take it while the server is down."""
    path = Path("/proc/sys/net/ipv4/ip_local_port_range")
    lowest = int(path.read_text().split()[0]) if path.exists() else 49152

    assert cluster.port < lowest


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_restart_keeps_port_and_data(own_cluster: Cluster, mode: cluster_module.StopMode) -> None:
    """After a restart the same connection URL leads to the same committed rows."""
    dsn = own_cluster.dsn()
    await value(dsn, "create table kept as select 7 as n")
    before = own_cluster.pid

    own_cluster.restart(mode)

    assert own_cluster.dsn() == dsn
    assert own_cluster.pid != before
    assert await value(dsn, "select n from kept") == 7


async def test_kill_ends_every_process_at_once_and_a_start_recovers(own_cluster: Cluster) -> None:
    """A kill leaves no server process alive, a computing one neither, and a start finds what was committed."""
    await value(own_cluster.dsn(), "create table kept as select 7 as n")
    # A backend that computes does not notice by itself that its server is gone.
    computing = asyncio.create_task(value(own_cluster.dsn(), "select count(*) from generate_series(1, 1e9) n"))

    async def computes() -> bool:
        return await backends(own_cluster, "active") == 2

    await until(computes, message="the backend computes")
    family = [psutil.Process(own_cluster.pid), *psutil.Process(own_cluster.pid).children()]
    assert len(family) > 3

    own_cluster.kill()

    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await computing
    assert [process for process in family if not has_ended(process.pid)] == []
    assert own_cluster.pid is None
    own_cluster.start()
    assert await value(own_cluster.dsn(), "select n from kept") == 7


async def test_stop_and_start_twice_are_harmless(own_cluster: Cluster) -> None:
    """Each verb may be repeated: the second call finds its work done."""
    pid = own_cluster.pid
    own_cluster.start()
    assert own_cluster.pid == pid

    own_cluster.stop()
    own_cluster.stop()
    own_cluster.kill()
    assert own_cluster.pid is None

    own_cluster.start()
    assert await value(own_cluster.dsn(), "select 1") == 1


def shared_memory_of(pid: int) -> list[Path]:
    """Return the shared memory of one server; others on the machine have theirs."""
    maps = Path(f"/proc/{pid}/maps").read_text().split()
    return [Path(word) for word in dict.fromkeys(maps) if word.startswith("/dev/shm/PostgreSQL.")]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_close_leaves_nothing(make_cluster: type_of_make, end: str) -> None:
    """After close no process, no folder and no shared memory is left, not even when the server was killed."""
    own = make_cluster()
    folder, pid = own.folder, own.pid
    assert pid is not None
    segments = shared_memory_of(pid)
    assert segments
    getattr(own, end)()

    own.close()
    own.close()

    assert not folder.exists()
    assert not psutil.pid_exists(pid)
    assert [segment for segment in segments if segment.exists()] == []


def test_a_taken_port_costs_another_try(make_cluster: type_of_make, monkeypatch: pytest.MonkeyPatch) -> None:
    """When somebody takes the chosen port before the server does, another port is used."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = iter([taken.getsockname()[1], cluster_module._free_port()])
        monkeypatch.setattr(cluster_module, "_free_port", lambda: next(ports))

        own = make_cluster()

        assert own.pid is not None
        assert own.port != taken.getsockname()[1]


def test_the_port_of_before_is_used_again_unless_it_is_taken(own_cluster: Cluster, tmp_path: Path) -> None:
    """A folder tells its last port; it is chosen again when nobody listens there, else another one."""
    assert cluster_module.last_port(tmp_path) is None
    port = own_cluster.port
    programs = own_cluster._given_programs
    assert Cluster(programs, first_port=port)._choose_port() != port
    own_cluster.stop()
    assert cluster_module.last_port(own_cluster.folder) == port
    assert Cluster(programs, first_port=port)._choose_port() == port


def test_a_server_that_does_not_start_says_why(make_cluster: type_of_make) -> None:
    """The error carries what PostgreSQL wrote, and the half-made cluster is cleared away."""
    with pytest.raises(Unavailable, match="no_such_setting"):
        make_cluster({"no_such_setting": "1"})


async def test_databases_are_cloned_and_dropped(cluster: Cluster) -> None:
    """A clone has the template's rows, any name goes, and a drop ends the connections that are open."""
    cluster.create_database("orig in")
    await value(cluster.dsn("orig in"), "create table t as select 3 as n")
    cluster.create_database('-copy "x"', template="orig in")
    connection = await asyncpg.connect(host="127.0.0.1", port=cluster.port, user="postgres", database='-copy "x"')
    assert await connection.fetchval("select n from t") == 3

    cluster.drop_database('-copy "x"')
    cluster.drop_database('-copy "x"')
    cluster.drop_database("orig in")

    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await connection.fetchval("select 1")
    with pytest.raises(Unavailable, match="no_such"):
        cluster.create_database("new", template="no_such")


async def test_a_given_folder_is_kept_and_used_again(postgresql_version: str) -> None:
    """A cluster in the caller's folder finds its data again; the folder is never removed."""
    programs = databases.programs_or_skip(databases.VERSIONS[postgresql_version])
    with Cluster(programs) as outer:  # lends a folder that the server's account can enter
        folder = outer.folder / "given"
        with Cluster(programs, folder) as first:
            await value(first.dsn(), "create table kept as select 7 as n")
        assert (folder / "data" / "PG_VERSION").exists()
        with Cluster(programs, folder) as second:
            assert await value(second.dsn(), "select n from kept") == 7


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM, None], ids=["killed", "terminated", "ended"])
def test_the_server_ends_with_its_owner(postgresql_version: str, death: signal.Signals | None) -> None:
    """However the owning process ends, even by SIGKILL, the server ends and the folder is removed."""
    kind = databases.VERSIONS[postgresql_version]
    databases.programs_or_skip(kind)
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        assert psutil.pid_exists(int(pid))

        if death is None:
            owner.communicate()
        else:
            owner.send_signal(death)

    wait_until(lambda: not Path(folder).exists(), 30, "the folder is removed")
    # Soon: a server whose folder is gone ends by itself too, within a minute.
    wait_until(lambda: has_ended(int(pid)), 5, "the server ends before its folder goes")


def test_the_environment_of_the_caller_does_not_leak_in(
    make_cluster: type_of_make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PG* variables of the caller's shell, meant for another server, change nothing."""
    for name, wrong in {
        "PGPORT": "1",
        "PGHOST": "nowhere",
        "PGDATA": "/nowhere",
        "PGOPTIONS": "-c x",
        "LC_ALL": "xx",
    }.items():
        monkeypatch.setenv(name, wrong)

    own = make_cluster()
    own.create_database("fine")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root lends PostgreSQL another account")
def test_as_root_the_server_runs_as_an_existing_unprivileged_user(cluster: Cluster) -> None:
    """Root's cluster runs as `postgres` or `nobody`, without root's groups; no user was made for it."""
    server = psutil.Process(cluster.pid)

    assert server.username() in ("postgres", "nobody")
    assert 0 not in (*server.uids(), *server.gids())
    assert "Groups:\t \n" in Path(f"/proc/{server.pid}/status").read_text() or psutil.LINUX is False


STARTER = """
import sys
from headrace.embedded.cluster import Cluster
from headrace.embedded.programs import find_programs
with Cluster(find_programs(sys.argv[1])) as cluster:
    sys.stdin.read()
"""


def test_killed_in_the_midst_of_its_start_nothing_is_left(
    postgresql_version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL while initdb runs: the folder goes all the same, and no process of it lives on."""
    kind = databases.VERSIONS[postgresql_version]
    databases.programs_or_skip(kind)
    open_to_all = Path(tempfile.mkdtemp(prefix="headrace-test-"))
    open_to_all.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(open_to_all))
    try:
        with subprocess.Popen([sys.executable, "-c", STARTER, kind], stdin=subprocess.PIPE) as owner:
            wait_until(lambda: any(open_to_all.glob("headrace-*/data/*")), 30, "initdb has begun")
            owner.kill()
        wait_until(lambda: not any(open_to_all.iterdir()), 30, "the folder is removed")
        wait_until(lambda: not processes_about(open_to_all), 5, "every process has ended")
    finally:
        shutil.rmtree(open_to_all, ignore_errors=True)


def processes_about(folder: Path) -> list[str]:
    """Return the command lines that name a folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            found.append(" ".join(process.cmdline()))
    return [line for line in found if str(folder) in line]
