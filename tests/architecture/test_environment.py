"""The environment that `make` builds: on every Python that Headrace promises, and with a reason when it fails."""

import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
OLDEST = "3.11.0"
PIP = """#!/bin/sh
[ "$1" = -c ] && exit 0
echo "The conflict is caused by: mill 1 needs wheel 2"
echo "ERROR: no luck" >&2
exit 3
"""


def test_every_pin_is_for_the_oldest_python_too() -> None:
    """No pinned version wants a newer Python than the oldest that we promise; Debian 12 has 3.11.2."""
    seen, too_new = 0, []
    for line in (ROOT / "requirements" / "constraints.txt").read_text("utf-8").splitlines():
        name, pinned, version = line.partition("==")
        try:
            installed = distribution(name)
        except (PackageNotFoundError, ValueError):
            continue  # a build tool, or a comment
        if pinned and installed.version == version:
            seen += 1
            wanted = ",".join(installed.metadata.get_all("Requires-Python") or [])
            if not SpecifierSet(wanted).contains(OLDEST):
                too_new.append(f"{line} wants Python {wanted}")
    assert too_new == []
    assert seen > 50, "the environment is not the one that is pinned: make setup"


def test_a_failed_install_tells_what_pip_said(tmp_path: Path) -> None:
    """What pip prints of a conflict is shown, its exit code is kept, and no stamp says that all is well."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for name in ("pyproject.toml", "requirements/constraints.txt", "env/bin/python", "env/bin/pip"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("", "utf-8")
    (tmp_path / "env/bin/python").write_text(PIP, "utf-8")
    (tmp_path / "env/bin/python").chmod(0o755)
    (tmp_path / "env/bin/pip").write_text(f"#!{tmp_path}/env/bin/python\n", "utf-8")
    done = subprocess.run(
        ["sh", "scripts/make-environment", "env", "demo"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "mill 1 needs wheel 2" in done.stderr
    assert "ERROR: no luck" in done.stderr
    assert not (tmp_path / "env" / "headrace-stamp").exists()
