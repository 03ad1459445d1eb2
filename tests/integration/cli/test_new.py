"""`headrace new`: what it makes works as it is, and it overwrites nothing."""

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from headrace import __version__
from headrace.cli.new import LONGEST_NAME, installed_from, make_project
from headrace.domain.errors import UsageError
from support.commands import environment, headrace
from support.projects import project

ROOT = Path(__file__).parents[3]
TEMPLATES = ROOT / "worker" / "headrace" / "cli" / "templates" / "project"


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, check=False, timeout=240)


def test_a_new_project_passes_its_own_tests() -> None:
    """Made by the command, its `pytest` run for real: all its tests pass, on a database and in memory."""
    with project("shop-reports") as folder:
        done = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "2 passed" in done.stdout


def test_a_new_project_is_clean() -> None:
    """Its code is formatted, linted and typed; its app loads and has the name of the project."""
    with project("shop-reports") as folder:
        for tool in (["ruff", "check"], ["ruff", "format", "--check"], ["mypy", "--strict", "--no-incremental"]):
            done = run(sys.executable, "-m", *tool, ".", cwd=folder)
            assert done.returncode == 0, done.stdout + done.stderr
        code = "from shop_reports.read_models import app; print(app.name, *app.subscribers)"
        assert run(sys.executable, "-c", code, cwd=folder).stdout.split() == ["shop-reports", "customer_totals"]


def test_everything_that_it_says_is_so() -> None:
    """No placeholder is left; names agree between the manifest, the image, the Makefile and the code."""
    with project("shop-reports") as folder:
        texts = {p.relative_to(folder).as_posix(): p.read_text("utf-8") for p in folder.rglob("*") if p.is_file()}
    assert [name for name, text in texts.items() if "{{" in text or ".tmpl" in name] == []
    assert set(texts) == {
        ".gitignore", "Dockerfile", "Makefile", "README.md", "events.jsonl", "pyproject.toml", "subscriber.yaml",
        "shop_reports/__init__.py", "shop_reports/events.py", "shop_reports/read_models.py",
        "tests/test_read_models.py",
    }  # fmt: skip
    manifest = texts["subscriber.yaml"]
    assert "apiVersion: headrace.dev/v1alpha1\nkind: Subscriber\n" in manifest
    assert 'app: "shop_reports.read_models:app"' in manifest
    assert "image: registry.example/shop-reports:0.1.0" in manifest
    assert "IMAGE ?= registry.example/shop-reports:0.1.0" in texts["Makefile"]
    assert f"headrace-worker:{__version__}" in texts["Dockerfile"]
    assert f"headrace>={__version__}" in tomllib.loads(texts["pyproject.toml"])["project"]["dependencies"]


def test_the_command_makes_a_folder_and_says_how_to_go_on(tmp_path: Path) -> None:
    """It lists the files and the next steps; an empty folder of that name may be there, a second time it refuses."""
    (tmp_path / "shop").mkdir()
    made = headrace("new", "shop", cwd=tmp_path)
    assert made.code == 0, made
    assert "  shop/shop/read_models.py\n" in made.out
    assert made.out.index("make setup") < made.out.index("make test") < made.out.index("make dev")
    (tmp_path / "shop" / "README.md").write_text("mine", "utf-8")
    again = headrace("new", "shop", cwd=tmp_path)
    assert (again.code, again.out) == (2, "")
    assert "not empty: choose another name, or empty it" in again.err
    assert (tmp_path / "shop" / "README.md").read_text("utf-8") == "mine"


def test_its_environment_is_made_from_where_headrace_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The Makefile names the folder that Headrace was installed from; its name when that was no folder, or is gone."""
    origin: dict[str, object] = {"url": ROOT.as_uri(), "dir_info": {"editable": True}}

    class Installed:
        """Stands in for the installed distribution."""

        def read_text(self, _: str) -> str | None:
            return json.dumps(origin) if origin else None

    monkeypatch.setattr("headrace.cli.new.distribution", lambda _: Installed())
    make_project("shop", tmp_path)
    assert f"\nHEADRACE ?= {ROOT}\n" in (tmp_path / "shop" / "Makefile").read_text("utf-8")
    others: list[dict[str, object]] = [{}, {"url": (ROOT / "headrace.whl").as_uri(), "archive_info": {}}]
    others.append({"url": "https://x.example/headrace.git", "vcs_info": {}})
    folders = (tmp_path, "/no/such/folder", f"{ROOT}/$(HOME)")
    others.extend({"url": f"file://{folder}", "dir_info": {}} for folder in folders)
    for other in others:
        origin = other
        assert installed_from() == "headrace", other


def test_make_test_names_what_comes_first(tmp_path: Path) -> None:
    """Where pytest is not installed, `make test` says that `make setup` comes first, and no traceback."""
    make_project("shop", tmp_path)
    made = run("make", "test", "PYTHON=false", cwd=tmp_path / "shop")
    assert (made.returncode, "first: make setup" in made.stderr) == (2, True), made


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("class", "a word of the language"),
        ("json", "Python has a module"),
        ("headrace", "Headrace itself"),
        ("headrace-operator", "of Headrace"),
        ("tests", "folder of the tests"),
        ("pytest", "is installed"),
    ],
)
def test_a_refused_name_is_told_why(tmp_path: Path, name: str, reason: str) -> None:
    """The message names what has the name already."""
    with pytest.raises(UsageError, match=reason):
        make_project(name, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        *("", "Shop", "1shop", "a b", "../shop", "shop/", "shop_", "a--b", "x" * (LONGEST_NAME + 1)),
        *("class", "json", "tests", "pytest", "headrace"),
    ],
)
def test_a_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    """A name that is no module's, or is one's already, makes nothing; the message says what to do."""
    with pytest.raises(UsageError, match=r"choose another name|such as shop"):
        make_project(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """What is in the way is named, not shown as a traceback."""
    (tmp_path / "shop").write_text("a file", "utf-8")
    with pytest.raises(UsageError, match="is there already"):
        make_project("shop", tmp_path)


def test_the_wheel_holds_the_templates(tmp_path: Path) -> None:
    """The templates are files of the package: a wheel that is built from this tree has every one."""
    code = "from hatchling.build import build_wheel; import sys; print(build_wheel(sys.argv[1]))"
    built = run(sys.executable, "-c", code, str(tmp_path), cwd=ROOT)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = {p.relative_to(ROOT / "worker").as_posix() for p in TEMPLATES.rglob("*.tmpl")}
    assert len(wanted) == 11
    assert wanted <= held
