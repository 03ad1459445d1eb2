"""The right PostgreSQL is found, the wheel's Python stays unimported, and closed folders are no obstacle."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from headrace.domain.errors import UsageError
from headrace.embedded import account as account_module
from headrace.embedded import programs as programs_module
from headrace.embedded.account import Account, find_account, make_folder, reachable_programs
from headrace.embedded.cluster import Cluster
from headrace.embedded.processes import Guard
from headrace.embedded.programs import Kind, Programs, find_programs
from support import databases

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root lends PostgreSQL another account")


def fake_programs(folder: Path, answer: str) -> Path:
    """Make a folder of programs that all print one answer."""
    folder.mkdir(parents=True)
    for name in programs_module.NEEDED:
        (folder / name).write_text(f"#!/bin/sh\necho '{answer}'\n")
        (folder / name).chmod(0o755)
    return folder


def test_finds_the_system_and_the_wheel() -> None:
    """Both kinds are found with their major version, and the wheel's newest is taken."""
    assert databases.programs_or_skip("system").major >= 15
    assert databases.programs_or_skip("embedded").major == 18


def test_an_older_major_can_be_asked_for() -> None:
    """The wheel holds several versions; one is named by its major."""
    databases.programs_or_skip("embedded")
    assert find_programs("embedded", 16).major == 16


def test_takes_the_newest_and_passes_over_what_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several installs the newest by number wins; incomplete ones and ones that do not run are passed over."""
    nine = fake_programs(tmp_path / "9", "postgres (PostgreSQL) 9.6.1")
    ten = fake_programs(tmp_path / "10", "postgres (PostgreSQL) 10.3")
    broken = fake_programs(tmp_path / "99", "not a version")
    incomplete = fake_programs(tmp_path / "98", "postgres (PostgreSQL) 98.1")
    (incomplete / "initdb").unlink()
    monkeypatch.setattr(programs_module, "_system_folders", lambda: iter([nine, broken, incomplete, ten, ten]))

    assert find_programs("system") == Programs(bin_dir=ten, major=10, kind="system")
    assert find_programs("system", 9).bin_dir == nine


@pytest.mark.parametrize(
    ("kind", "fix"), [("system", "apt-get install postgresql"), ("embedded", "pip install 'headrace[demo]'")]
)
def test_what_is_missing_is_named_with_its_fix(kind: Kind, fix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setattr(programs_module, "_system_folders", lambda: iter(()))
    monkeypatch.setattr(programs_module, "_embedded_folders", lambda: iter(()))

    with pytest.raises(UsageError) as caught:
        find_programs(kind)

    assert fix in str(caught.value)


def test_the_wheel_is_never_imported() -> None:
    """Finding the wheel's programs does not run its Python: that has side effects, as root harmful ones."""
    if importlib.util.find_spec(programs_module.WHEEL) is None:
        pytest.skip("the demo extra is not installed: pip install 'headrace[demo]'")
    code = (
        "import sys; from headrace.embedded.programs import find_programs; find_programs('embedded');"
        f"sys.exit({programs_module.WHEEL!r} in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_root_without_an_unprivileged_account_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """No account is ever made: root without `postgres` and `nobody` gets an error that says what to do."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(account_module, "CANDIDATES", ("no-such-user",))

    with pytest.raises(UsageError, match="run this as another user"):
        find_account()


def test_others_run_as_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary user borrows no account."""
    monkeypatch.setattr(os, "geteuid", lambda: 4711)

    assert find_account() == Account(name="4711", uid=4711, gid=os.getegid(), borrowed=False)
    assert find_account().popen_arguments() == {}


@needs_root
def test_a_closed_temporary_folder_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TMPDIR in a home that the borrowed account cannot enter is left alone, and another one is used."""
    closed = tmp_path / "home"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(closed))

    guard = Guard()
    folder = make_folder(find_account(), guard)

    assert not folder.is_relative_to(closed)
    assert list(closed.iterdir()) == []
    guard.release()
    assert not folder.exists()


@needs_root
def test_programs_in_a_closed_home_are_copied_and_work(tmp_path: Path) -> None:
    """From a virtual environment below a closed home the cluster runs a copy, which goes when the cluster goes."""
    programs = databases.programs_or_skip("embedded")
    package = programs.bin_dir.parent.parent
    closed = tmp_path / "home" / "site-packages"
    shutil.copytree(package, closed / package.name, ignore=shutil.ignore_patterns("include", "pginstall"))
    shutil.copytree(package.parent / f"{package.name}.libs", closed / f"{package.name}.libs")
    (tmp_path / "home").chmod(0o700)
    hidden = Programs(closed / package.name / programs.bin_dir.parent.name / "bin", programs.major, "embedded")

    with Cluster(hidden) as cluster:
        folder = cluster.folder
        cluster.create_database("works")
        assert (folder / "programs").exists()
        assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700

    assert not folder.exists()


@needs_root
def test_open_programs_are_used_in_place() -> None:
    """Programs that the account can run are not copied."""
    programs = databases.programs_or_skip("system")
    guard = Guard()
    folder = make_folder(find_account(), guard)

    assert reachable_programs(programs, find_account(), folder) is programs
    guard.release()
