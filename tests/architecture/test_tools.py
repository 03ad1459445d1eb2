"""The tools guard what the house relies on: each contract and each strictness was seen to catch a broken tree.

They run on a small tree that has every room, with our settings, so that the state of the real tree does not matter.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
ROOMS = {
    "worker/headrace": (
        "api", "cli", "domain", "embedded", "engine", "failures", "partitioning", "ports", "runtime", "store",
        "subscribers", "telemetry", "testing",
    ),
    "operator/headrace_operator": (
        "backlog", "cluster", "handlers", "manifests", "planning", "custom_resource", "scaling",
    ),
}  # fmt: skip
MODULES = {
    "worker/headrace/__main__.py": '"""Start."""\n\nimport headrace.cli.entry\n\n__all__ = ["headrace"]\n',
    "worker/headrace/settings.py": '"""Settings."""\n\nimport pydantic\nimport pydantic_settings\n\n'
    '__all__ = ["pydantic", "pydantic_settings"]\n',
    "worker/headrace/cli/entry.py": '"""Entry."""\n\nimport headrace.runtime\n\n__all__ = ["headrace"]\n',
    "worker/headrace/store/pool.py": '"""Pool."""\n\nimport asyncpg\n\n__all__ = ["asyncpg"]\n',
    "worker/headrace/telemetry/figures.py": '"""Figures."""\n\nimport prometheus_client\n\n'
    '__all__ = ["prometheus_client"]\n',
    "operator/headrace_operator/__main__.py": '"""Start."""\n',
    "operator/headrace_operator/settings.py": '"""Settings."""\n',
}

CONTRACTS = [
    ("rooms import to the right only", "worker/headrace/engine/a.py", "import headrace.store"),
    ("rooms import to the right only", "worker/headrace/engine/a.py", "import headrace.runtime"),
    ("rooms import to the right only", "worker/headrace/embedded/a.py", "import headrace.store.pool"),
    ("rooms import to the right only", "worker/headrace/domain/a.py", "import headrace.failures"),
    ("rooms import to the right only", "worker/headrace/ports/a.py", "import headrace.settings"),
    ("rooms import to the right only", "worker/headrace/mill/__init__.py", ""),
    ("rooms import to the right only", "worker/headrace/mill.py", ""),
    ("rooms import to the right only", "operator/headrace_operator/scaling/a.py", "import headrace_operator.cluster"),
    ("rooms import to the right only", "operator/headrace_operator/mill/__init__.py", ""),
    ("never import each other", "operator/headrace_operator/backlog/a.py", "import headrace.store"),
    ("never import each other", "worker/headrace/store/a.py", "import headrace_operator"),
    ("asyncpg only in", "worker/headrace/engine/a.py", "import asyncpg"),
    ("asyncpg only in", "worker/headrace/cli/a.py", "from asyncpg import connect"),
    ("prometheus_client only in", "worker/headrace/api/a.py", "from prometheus_client import Counter"),
    ("pydantic only where", "worker/headrace/domain/a.py", "from pydantic import BaseModel"),
    ("pydantic only where", "worker/headrace/engine/a.py", "import pydantic_settings"),
    ("kopf only in", "operator/headrace_operator/scaling/a.py", "import kopf"),
    ("kopf only in", "worker/headrace/runtime/a.py", "import kopf"),
    ("Kubernetes client only in", "operator/headrace_operator/handlers/a.py", "import kubernetes"),
    *[
        ("the deciding rooms", f"worker/headrace/{room}/a.py", f"import {module}")
        for room, module in [
            ("domain", "asyncio"), ("partitioning", "time"), ("failures", "random"), ("domain", "os"),
            ("failures", "logging"),
        ]
    ],
    ("the deciding rooms", "operator/headrace_operator/planning/a.py", "from time import time"),
    ("never import testing", "worker/headrace/runtime/a.py", "import headrace.testing.twins"),
    ("never import testing", "worker/headrace/cli/a.py", "import headrace.testing.twins"),
    ("in-memory ports know", "worker/headrace/testing/a.py", "import headrace.engine"),
    ("in-memory ports know", "worker/headrace/testing/a.py", "from headrace.store import pool"),
]  # fmt: skip

LINT = [
    ("A005", "worker/headrace/store/types.py", '"""A name of the standard library."""\n'),
    ("A005", "operator/__init__.py", '"""The folder as a package."""\n'),
    ("F401", "worker/headrace/store/a.py", '"""Unused."""\n\nimport json\n'),
    ("T201", "worker/headrace/store/a.py", '"""Print."""\n\nprint("x")\n'),
    ("D103", "worker/headrace/store/a.py", '"""Undocumented."""\n\n\ndef public() -> None:\n    pass\n'),
    ("D100", "worker/headrace/store/a.py", "A = 1\n"),
    ("BLE001", "worker/headrace/store/a.py", '"""Catches all."""\n\ntry:\n    A = 1\nexcept Exception:\n    A = 2\n'),
    ("PGH003", "worker/headrace/store/a.py", '"""Bare ignore."""\n\nA: int = "x"  # type: ignore\n'),
    ("TD003", "worker/headrace/store/a.py", '"""No issue."""\n\n# TODO: later\nA = 1\n'),
    ("RUF006", "worker/headrace/store/a.py",
     '"""Forgets."""\n\nimport asyncio\n\n\nasync def f() -> None:\n    """Do."""\n    asyncio.create_task(f())\n'),
]  # fmt: skip

TYPES = [
    ("no-untyped-def", "def f(a):\n    return a\n"),
    ("type-arg", "def f(a: list) -> None:\n    del a\n"),
    ("no-any-return", "import json\n\n\ndef f() -> int:\n    return json.loads('1')\n"),
    ("ignore-without-code", "A: int = ''  # type: ignore\n"),
    ("unused-ignore", "A: int = 1  # type: ignore[assignment]\n"),
    ("possibly-undefined", "def f(a: bool) -> int:\n    if a:\n        b = 1\n    return b\n"),
    ("arg-type", "import pydantic\n\n\nclass M(pydantic.BaseModel):\n    a: int\n\n\nM(a='x')\n"),
    ("import-not-found", "import support.no_such_module\n"),
]


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A tree with every room and our settings."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests").mkdir()
    for package, rooms in ROOMS.items():
        write(tmp_path, f"{package}/__init__.py", '"""A package."""\n')
        for room in rooms:
            write(tmp_path, f"{package}/{room}/__init__.py", '"""A room."""\n')
    write(tmp_path, "worker/headrace/testing/twins.py", '"""Twins."""\n')
    write(tmp_path, "tests/test_it.py", '"""Tests."""\n')
    for name, text in MODULES.items():
        write(tmp_path, name, text)
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    """Write one file of a tree."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, "utf-8")


def run(root: Path, *command: str) -> tuple[int, str]:
    """Run a tool in a tree that shadows the installed packages; return its exit code and what it printed."""
    environment = os.environ | {"PYTHONPATH": f"{root / 'worker'}:{root / 'operator'}", "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, done.stdout + done.stderr


def check_imports(root: Path) -> tuple[int, str]:
    """Run import-linter."""
    return run(root, str(BIN / "lint-imports"), "--no-cache", "--no-logo")


def check_lint(root: Path) -> tuple[int, str]:
    """Run ruff."""
    return run(root, str(BIN / "ruff"), "check", "--no-cache", "--output-format", "concise", ".")


def check_types(root: Path) -> tuple[int, str]:
    """Run mypy with a cache that the tests of this module share, so that only the first one is slow."""
    cache = root.parent / "mypy-cache"
    return run(root, sys.executable, "-m", "mypy", "--cache-dir", str(cache), "worker", "operator", "tests")


@pytest.mark.parametrize("tool", [check_imports, check_lint, check_types])
def test_a_sound_tree_passes(house: Path, tool: Callable[[Path], tuple[int, str]]) -> None:
    """The tree that the breaches are put into passes every tool."""
    code, said = tool(house)

    assert code == 0, said


@pytest.mark.parametrize(("contract", "name", "text"), CONTRACTS, ids=lambda value: value.replace("/", "."))
def test_a_forbidden_import_is_caught(house: Path, contract: str, name: str, text: str) -> None:
    """The contract that forbids it breaks, by name."""
    write(house, name, f'"""A breach."""\n\n{text}\n')

    code, said = check_imports(house)

    assert code == 1, said
    assert [line for line in said.splitlines() if contract in line and line.endswith("BROKEN")], said


@pytest.mark.parametrize(("rule", "name", "text"), LINT, ids=lambda value: value.replace("/", ".")[:40])
def test_a_lint_breach_is_caught(house: Path, rule: str, name: str, text: str) -> None:
    """Ruff names the rule and the file."""
    write(house, name, text)

    code, said = check_lint(house)

    assert code == 1, said
    assert [line for line in said.splitlines() if line.startswith(name) and f" {rule} " in line], said


def test_an_unformatted_file_is_caught(house: Path) -> None:
    """The formatter's check fails on a file it would change."""
    write(house, "worker/headrace/store/a.py", "A = {  'x':1}\n")

    code, said = run(house, str(BIN / "ruff"), "format", "--no-cache", "--check", ".")

    assert code == 1
    assert "worker/headrace/store/a.py" in said


def test_type_breaches_are_caught(house: Path) -> None:
    """Mypy is strict on product code and on tests, one error code for each breach."""
    for number, (_, text) in enumerate(TYPES):
        write(house, f"worker/headrace/subscribers/breach_{number}.py", text)
    write(house, "tests/test_breach.py", TYPES[0][1])

    code, said = check_types(house)

    assert code == 1
    for number, (rule, _) in enumerate(TYPES):
        found = [line for line in said.splitlines() if f"breach_{number}.py" in line and f"[{rule}]" in line]
        assert found, f"{rule} in breach_{number}: {said}"
    assert "tests/test_breach.py" in said
