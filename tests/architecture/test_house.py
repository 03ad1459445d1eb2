"""The tree keeps the rules of the house, and each rule has been seen to catch a tree that does not."""

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from support import house

ROOT = Path(__file__).parents[2]
CONTRACT = """
[project]
version = "1.2.3"
dependencies = ["Some_Thing>=1"]
[project.optional-dependencies]
more = ["other-thing>=2; python_version > '3'"]
[[tool.importlinter.contracts]]
type = "layers"
containers = ["headrace"]
layers = ["(cli)", "(engine) | (store)", "domain"]
[[tool.importlinter.contracts]]
type = "layers"
containers = ["headrace_operator"]
layers = ["(__main__)"]
"""

# Each of these files, put into a tree that is sound otherwise, breaks the rule named.
BROKEN: list[tuple[house.Rule, str, str]] = [
    (house.loose_files, "operator/__init__.py", ""),
    (house.loose_files, "worker/run.py", ""),
    (house.packages_in_tests, "tests/unit/operator/__init__.py", ""),
    (house.stdlib_names, "worker/headrace/store/queue.py", ""),
    (house.stdlib_names, "operator/headrace_operator/signal/__init__.py", ""),
    (house.vague_names, "worker/headrace/engine/utils.py", ""),
    (house.vague_names, "tests/support/helpers.py", ""),
    (house.sql_in_python, "worker/headrace/store/a.py", 'Q = "select position from headrace.events"'),
    (house.sql_in_python, "worker/headrace/store/a.py", 'Q = f"""insert into {table} values (1)"""'),
    (house.sql_in_python, "worker/headrace/store/a.py", 'def f(c): c.execute("update t set a = 1")'),
    (house.sql_in_python, "worker/headrace/store/a.py", 'Q = "DELETE  FROM t"'),
    (house.sql_in_python, "worker/headrace/store/a.py", 'Q = "create unique index i on t (a)"'),
    (house.sql_in_python, "worker/headrace/store/a.py", 'Q = "select pg_advisory_xact_lock(1)"'),
    (house.sql_in_python, "worker/headrace/store/a.py", 'Q = "set local lock_timeout = 1"'),
    (house.sql_in_python, "worker/headrace/store/a.py", 'Q = "select 1"'),
    (house.sql_in_python, "worker/headrace/store/a.py", 'Q = "rollback"'),
    (house.sql_in_python, "worker/headrace/store/a.py", 'Q = f"grant select, insert on {t} to x"'),
    (house.sql_in_python, "operator/headrace_operator/a.py", 'Q = "truncate t.x"'),
    (house.sleeps_in_tests, "tests/unit/test_a.py", "import time\ntime.sleep(1)"),
    (house.sleeps_in_tests, "tests/unit/test_a.py", "from asyncio import sleep"),
    (house.sleeps_in_tests, "tests/support/slow.py", "import asyncio\nasync def f(): await asyncio.sleep(0.1)"),
    (house.long_modules, "worker/headrace/store/a.py", "a = 1\n" * 501),
    (house.long_functions, "worker/headrace/store/a.py", "def f():\n" + "    a = 1\n" * 60),
    (house.long_functions, "tests/unit/test_a.py", "async def f():\n" + "    a = 1\n" * 60),
    (house.unnamed_rooms, "worker/headrace/extra/__init__.py", ""),
    (house.unnamed_rooms, "worker/headrace/extra.py", ""),
    (house.unnamed_rooms, "operator/headrace_operator/extra/deep/a.py", ""),
    (house.rooms_without_door, "worker/headrace/store/deep/a.py", ""),
    (house.busy_inits, "worker/headrace/store/__init__.py", "import os\nHOME = os.getcwd()"),
    (house.busy_inits, "worker/headrace/store/__init__.py", "for a in (): pass"),
    (house.busy_inits, "worker/headrace/store/__init__.py", "class A: pass"),
    (house.busy_inits, "worker/headrace/store/__init__.py", "if TYPE_CHECKING:\n    A = 1\nelse:\n    A = make()"),
    (house.busy_inits, "worker/headrace/store/__init__.py", "if HURRY:\n    A = 1"),
    (house.undocumented_tests, "tests/unit/test_a.py", "def test_a(): pass"),
    (house.undocumented_tests, "tests/unit/test_a.py", "class TestA:\n    async def test_a(self): pass"),
    (house.refused_words, "worker/headrace/store/dispatcher.py", ""),
    (house.refused_words, "worker/headrace/store/a.py", "class ShardReader: pass"),
    (house.refused_words, "worker/headrace/store/a.py", "def read(next_offset): pass"),
    (house.refused_words, "worker/headrace/store/a.py", "def f(self): self.dead_letters = 1"),
    (house.refused_words, "operator/headrace_operator/a.py", "low_watermark = 1"),
    (house.machine_traces, "docs/a.md", "see /" + "work/main"),
    (house.machine_traces, "scripts/a", "cd /home/" + "ann/headrace"),
    (house.machine_traces, ".ci/run", "pip install -i https://pypi" + ".org/simple"),
    (house.uneven_versions, "operator/headrace_operator/__init__.py", '__version__ = "1.2.4"'),
    (house.unpinned_dependencies, "requirements/constraints.txt", "some-thing==1.0\n# other-thing\n"),
]

# Each of these looks like a breach and is none.
HARMLESS: list[tuple[house.Rule, str, str]] = [
    (house.sql_in_python, "worker/headrace/store/a.py", '"""Never select a from b in here."""'),
    (house.sql_in_python, "worker/headrace/store/a.py", 'M = "Select another name, or run headrace migrate first."'),
    (house.sql_in_python, "worker/headrace/store/a.py", 'M = "grant it SELECT on the sequence"'),
    (house.sql_in_python, "tests/unit/test_a.py", 'Q = "select 1"'),
    (house.sleeps_in_tests, "tests/support/waiting.py", "import time\ntime.sleep(1)"),
    (house.sleeps_in_tests, "tests/unit/test_a.py", "import asyncio\nasync def f(): await asyncio.sleep(0)"),
    (house.long_functions, "worker/headrace/store/a.py", 'def f():\n    """A.\n' + "\n" * 60 + '    """\n    return 1'),
    (house.busy_inits, "worker/headrace/store/__init__.py", '"""A room."""\nimport os\n__all__ = ["os"]'),
    (
        house.busy_inits,
        "worker/headrace/store/__init__.py",
        "if TYPE_CHECKING:\n    import os\nelse:\n    def __getattr__(name): return find(name)",
    ),
    (house.refused_words, "worker/headrace/store/a.py", "import socket\nsocket.steal()\nstealthy = 1"),
    (house.undocumented_tests, "tests/unit/test_a.py", 'def test_a():\n    """A rule."""'),
    (house.unnamed_rooms, "worker/headrace/__pycache__/extra.py", ""),
    (house.machine_traces, "worker/.venv/a", "/" + "work/main"),
    (house.machine_traces, "docs/a.md", "the /metrics path, a /framework/, registry.example/shop"),
]


def identity(value: object) -> str | None:
    """Name a case by its rule and file."""
    if inspect.isfunction(value):
        return value.__name__
    return value if isinstance(value, str) and "/" in value and " " not in value else ""


@pytest.fixture
def sound(tmp_path: Path) -> Callable[[str, str], Path]:
    """A small tree that keeps every rule, with one file put in or replaced."""
    files = {
        "pyproject.toml": CONTRACT,
        "requirements/constraints.txt": "some-thing==1.0\nother.thing==2.0\n",
        "worker/headrace/__init__.py": '__version__ = "1.2.3"\n',
        "worker/headrace/engine/__init__.py": "",
        "worker/headrace/store/__init__.py": "",
        "operator/headrace_operator/__init__.py": '__version__ = "1.2.3"\n',
        "tests/unit/test_sound.py": 'def test_sound():\n    """It is."""\n',
    }

    def build(name: str, text: str) -> Path:
        for each, content in (files | {name: text}).items():
            (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / each).write_text(content, "utf-8")
        return tmp_path

    return build


@pytest.mark.parametrize("rule", house.RULES, ids=identity)
def test_the_tree_keeps(rule: house.Rule) -> None:
    """Nothing in this tree breaks the rule."""
    assert rule(ROOT) == []


@pytest.mark.parametrize(("rule", "name", "text"), BROKEN, ids=identity)
def test_a_breach_is_caught(sound: Callable[[str, str], Path], rule: house.Rule, name: str, text: str) -> None:
    """The rule names the file that breaks it, once, and no other rule is needed to see it."""
    findings = rule(sound(name, text))

    assert len(findings) == 1
    assert name.startswith(findings[0].split(":")[0])


@pytest.mark.parametrize(("rule", "name", "text"), HARMLESS, ids=identity)
def test_what_only_looks_like_a_breach_passes(
    sound: Callable[[str, str], Path], rule: house.Rule, name: str, text: str
) -> None:
    """The rule has no false alarm on these."""
    assert rule(sound(name, text)) == []


@pytest.mark.parametrize("rule", house.RULES, ids=identity)
def test_the_sound_tree_is_sound(sound: Callable[[str, str], Path], rule: house.Rule) -> None:
    """The tree that the breaches are put into breaks no rule itself."""
    assert rule(sound("README.md", "A mill.")) == []


def test_every_rule_was_seen_to_catch_something() -> None:
    """No rule is without a breach above, and no function of the module is left out of the list."""
    assert set(house.RULES) == {rule for rule, _, _ in BROKEN}
    public = {each for name, each in vars(house).items() if inspect.isfunction(each) and not name.startswith("_")}
    assert public - {house.files_of} == set(house.RULES)
