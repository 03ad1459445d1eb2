"""The test run itself: coroutine tests, markers by folder, skips that count, soak tests that wait to be asked.

Each rule is tried on a small test tree of its own that uses this tree's conftest.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
ROOT = TESTS.parent


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project with our pytest settings, our conftest and no tests."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests").mkdir()
    shutil.copy(TESTS / "conftest.py", tmp_path / "tests")
    shutil.copytree(TESTS / "support", tmp_path / "tests" / "support")
    return tmp_path


def run(tree: Path, body: str, *options: str, folder: str = "unit", **environment: str) -> tuple[int, str]:
    """Run pytest on one test module in the tree; return its exit code and what it printed."""
    (tree / "tests" / folder).mkdir(exist_ok=True)
    (tree / "tests" / folder / "test_it.py").write_text(body)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options],
        cwd=tree, capture_output=True, text=True, check=False, env=inherited | environment,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_a_coroutine_test_really_runs(tree: Path) -> None:
    """An `async def` test that fails fails the run."""
    code, said = run(tree, "async def test_it(tmp_path):\n    assert tmp_path is None\n")

    assert code == 1
    assert "1 failed" in said


def test_a_task_left_over_fails_its_test(tree: Path) -> None:
    """A task that outlives its test is named and fails it; one that ends by itself does not."""
    code, said = run(
        tree,
        "import asyncio\n"
        "async def test_left():\n    asyncio.create_task(asyncio.Event().wait(), name='orphan')\n"
        "async def test_ends():\n    asyncio.create_task(asyncio.Event().wait()).cancel()\n",
    )

    assert code == 1
    assert "1 failed, 1 passed" in said
    assert "orphan" in said


def test_markers_follow_folders(tree: Path) -> None:
    """`-m` selects tests by the folder they lie in."""
    run(tree, "def test_b(): pass\n", folder="integration")

    assert "1 passed, 1 deselected" in run(tree, "def test_a(): pass\n", "-m", "unit")[1]


def test_an_unknown_folder_is_refused(tree: Path) -> None:
    """A new kind of test is named in the settings first."""
    code, said = run(tree, "def test_a(): pass\n", folder="misc")

    assert code != 0
    assert "misc" in said


def test_skips_are_counted_by_reason(tree: Path) -> None:
    """The run ends by saying how many tests were skipped and why."""
    body = "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_a(n): pytest.skip('no water')\n"

    code, said = run(tree, body)

    assert code == 0
    assert "skipped: 2 because no water" in said


def test_where_all_is_required_a_skip_fails(tree: Path) -> None:
    """With HEADRACE_REQUIRE_ALL=1 neither a test nor a module gets away with a skip."""
    test = "import pytest\n@pytest.mark.skipif(True, reason='no water')\ndef test_a(): pass\n"
    module = "import pytest\npytest.skip('no water', allow_module_level=True)\n"

    for body in (test, module):
        code, said = run(tree, body, HEADRACE_REQUIRE_ALL="1")
        assert code != 0
        assert "HEADRACE_REQUIRE_ALL is set: no water" in said


def test_an_expected_failure_is_no_skip(tree: Path) -> None:
    """`xfail` is neither counted as a skip nor refused."""
    body = "import pytest\n@pytest.mark.xfail(reason='known')\ndef test_a(): assert False\n"

    code, said = run(tree, body, HEADRACE_REQUIRE_ALL="1")

    assert code == 0
    assert "skipped: 0" in said


def test_soak_tests_wait_to_be_asked(tree: Path) -> None:
    """tests/soak runs with --soak only."""
    assert run(tree, "def test_a(): assert False\n", folder="soak")[0] == 5
    assert run(tree, "def test_a(): assert False\n", "--soak", folder="soak")[0] == 1


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [((), {}, 0.1), ((), {"HEADRACE_SCALE": "0.5"}, 0.5), (("--scale", "1"), {"HEADRACE_SCALE": "0.5"}, 1.0)],
)
def test_scale_comes_from_option_or_environment(
    tree: Path, options: tuple[str, ...], environment: dict[str, str], expected: float
) -> None:
    """The option beats the variable, and child processes see the same figure."""
    body = f"import os\ndef test_a(scale): assert scale == {expected} == float(os.environ['HEADRACE_SCALE'])\n"

    assert run(tree, body, *options, **environment)[0] == 0


def test_a_warning_fails_the_run(tree: Path) -> None:
    """Warnings are errors."""
    assert run(tree, "import warnings\ndef test_a(): warnings.warn('old')\n")[0] == 1


def test_both_versions_means_two_runs(tree: Path) -> None:
    """A test marked `both_versions` runs for pg15 and for pg18."""
    body = (
        "import pytest\n@pytest.mark.both_versions\n"
        "def test_a(postgresql_version): assert postgresql_version in ('pg15', 'pg18')\n"
    )

    assert "2 passed" in run(tree, body)[1]
