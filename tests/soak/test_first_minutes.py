"""A newcomer's first minutes: a fresh clone or a wheel, an empty home, and little more than Python on the path."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import databases
from support.leftovers import Family, left_of

ROOT = Path(__file__).parents[2]
# Make, a shell, and what POSIX promises beside it; no compiler, no git, no PostgreSQL.
PROGRAMS = ("make", "sh", "cat", "cksum", "cp", "env", "grep", "ln", "ls", "mkdir", "rm", "sed", "sleep", "tr", "uname")
VERDICT = "verdict: every read model is exactly what SQL over the log says"


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a bare machine: a path of a few programs, an empty home, and how pip reaches its index."""
    databases.programs_or_skip("embedded")
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "home").mkdir()
    (programs / "python3").symlink_to(Path(sys.executable).resolve())
    for name in PROGRAMS:
        found = shutil.which(name)
        assert found, name
        (programs / name).symlink_to(found)
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_CERT", "REQUESTS_CA"))}
    return kept | {"PATH": str(programs), "HOME": str(tmp_path / "home"), "LANG": "C.UTF-8"}


def run(environment: dict[str, str], cwd: Path, *command: str) -> str:
    """Return what a command printed; it must end well."""
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.timeout(1200)
def test_make_demo_in_a_fresh_clone(bare: dict[str, str], tmp_path: Path) -> None:
    """`make demo` is all that it takes; nothing is written to the home folder."""
    subprocess.run(["git", "clone", "-q", ROOT, tmp_path / "clone"], check=True)
    said = run(bare, tmp_path / "clone", shutil.which("make", path=bare["PATH"]) or "make", "demo")

    assert VERDICT in said
    assert "100,000 events" in said
    assert [path for path in (tmp_path / "home").iterdir() if path.name != ".cache"] == []
    assert left_of(Family(), tmp_path / "home") == []


@pytest.mark.timeout(1200)
def test_the_wheel_with_its_extra(bare: dict[str, str], tmp_path: Path) -> None:
    """`pip install` of the built wheel with the extra `demo`, then `headrace demo`, from any folder."""
    environment = tmp_path / "environment"
    run(bare, tmp_path, str(Path(sys.executable).resolve()), "-m", "venv", str(environment))
    pip = (str(environment / "bin" / "python"), "-m", "pip", "--quiet")
    run(bare, ROOT, *pip, "wheel", "--no-deps", "--wheel-dir", str(tmp_path / "wheels"), ".")
    (wheel,) = (tmp_path / "wheels").iterdir()
    run(bare, tmp_path, *pip, "install", f"{wheel}[demo]")
    said = run(bare, tmp_path / "home", str(environment / "bin" / "headrace"), "demo")

    assert VERDICT in said
    assert [path for path in (tmp_path / "home").iterdir() if path.name != ".cache"] == []
