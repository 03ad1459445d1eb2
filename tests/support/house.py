"""The rules of the house that no tool checks: each a function from a source tree to what breaks the rule in it.

They take the root of a tree, so that the tests can show each of them a broken one; a check that has never caught
anything is no check. Findings read `path:line: what is wrong and what to do instead`.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

Rule = Callable[[Path], list[str]]

PACKAGES = ("worker/headrace", "operator/headrace_operator")
PRODUCT = ("worker", "operator")
CODE = ("worker", "operator", "tests", "benchmarks", "examples")
LEFT_BEHIND = frozenset({"__pycache__", "build", "dist", "node_modules", "site"})
KEPT_HIDDEN = frozenset({".ci", ".editorconfig", ".gitignore", ".pre-commit-config.yaml"})
LONGEST_MODULE = 500
LONGEST_FUNCTION = 60

# What the glossary refuses as parts of names, and what it says instead.
REFUSED_WORDS = {
    "checkpoint": "cursor",
    "consumer": "subscription or subscriber",
    "dead_letter": "parked key",
    "deadletter": "parked key",
    "dispatcher": "router",
    "dlq": "parked key",
    "graceful": "drain",
    "high_water": "horizon",
    "offset": "position",
    "outbox": "inbox",
    "queue_depth": "backlog",
    "rebalance": "take over",
    "shard": "partition",
    "steal": "take over",
    "topic": "stream",
    "watermark": "horizon",
}
VAGUE_MODULES = frozenset({"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"})

SQL = re.compile(
    r"""
      \bselect\b .+ \bfrom\b            | ^\s* select \s+ (\d|'|\*|[\w.]+\s*\()     | \binsert \s+ into\b
    | \bupdate \s+ \S+ \s+ set\b        | \bdelete \s+ from\b                       | \btruncate \s+ (table\b|\w+\.)
    | \b(create|alter|drop) \s+ (unlogged\s+|unique\s+|or\s+replace\s+|temp\w*\s+)?
      (table|index|schema|function|view|role|sequence|database|trigger|type|extension) \s+ [\w"{%$]
    | \b(grant|revoke) \s+ (all|usage|select|insert|update|delete|execute)\b [\w, ]* \s on\b
    | \bfor \s+ (no \s+ key \s+)? (update|share)\b
    | ^\s* set \s+ (local|session|search_path|role)\b
    | ^\s* (begin|commit|rollback|(savepoint|release|listen|show)\s+\w+|unlisten\b.*|notify\s+\w+.*) \s* ;? \s*$
    | \bpg_(notify|advisory_\w+|try_advisory_\w+|sleep|terminate_backend)\b
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)  # fmt: skip

# Written so that this module does not find itself.
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|farm)/|(?<![\w.])/home/\w+/|/tmp/h[r]\b")
REGISTRY_HOST = re.compile(
    r"pypi\.org|pythonhosted\.org|deb\.debian\.org|registry\.npmjs\.org|proxy\.golang\.org|crates\.io|repo1?\.maven\.",
)


def files_of(root: Path, *folders: str, suffix: str = "") -> Iterator[Path]:
    """Yield the files of a tree, or of some of its folders, that are source: nothing hidden, nothing generated."""
    for start in [root / folder for folder in folders] or [root]:
        for path in sorted(start.rglob(f"*{suffix}")):
            parts = path.relative_to(root).parts
            hidden = any(part.startswith(".") and part not in KEPT_HIDDEN for part in parts)
            if path.is_file() and not hidden and not LEFT_BEHIND.intersection(parts):
                yield path


def loose_files(root: Path) -> list[str]:
    """`worker/` and `operator/` hold a package and no Python of their own: `operator` is also a stdlib module."""
    return [
        f"{path.relative_to(root)}: move it into the package beside it"
        for folder in PRODUCT
        for path in sorted((root / folder).glob("*.py"))
    ]


def packages_in_tests(root: Path) -> list[str]:
    """No `__init__.py` under tests: one in tests/unit/operator/ would make that folder a package called operator."""
    return [
        f"{path.relative_to(root)}: remove it, tests are no packages"
        for path in files_of(root, "tests", suffix="__init__.py")
    ]


def stdlib_names(root: Path) -> list[str]:
    """No module or package is named after one of the standard library."""
    return [
        f"{path.relative_to(root)}: {name!r} is a module of the standard library, choose another name"
        for path in files_of(root, *CODE, suffix=".py")
        if (name := path.parent.name if path.stem == "__init__" else path.stem) in sys.stdlib_module_names
    ]


def vague_names(root: Path) -> list[str]:
    """No module is named for holding everything."""
    return [
        f"{path.relative_to(root)}: {name!r} says nothing, name the module for what it holds"
        for path in files_of(root, *CODE, suffix=".py")
        if (name := path.parent.name if path.stem == "__init__" else path.stem) in VAGUE_MODULES
    ]


def sql_in_python(root: Path) -> list[str]:
    """SQL lives in `.sql` files; product code holds none, docstrings aside."""
    found = []
    for path, tree in _trees(root, *PRODUCT):
        texts = _docstrings(tree)
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Constant) and isinstance(node.value, str)) or id(node) in texts:
                continue
            if SQL.search(node.value):
                found.append(f"{path.relative_to(root)}:{node.lineno}: SQL in Python, move it to a .sql file")
    return found


def sleeps_in_tests(root: Path) -> list[str]:
    """Tests wait for what they want to see; only support/waiting.py lets time pass.

    A bare `sleep(0)` is a turn of the loop, and a manual clock's sleep takes no time: both are allowed.
    """
    found = []
    for path, tree in _trees(root, "tests"):
        if path == root / "tests" / "support" / "waiting.py":
            continue
        turns = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_turn_of_the_loop(node)}
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(attr="sleep", value=ast.Name(id="time" | "asyncio"), lineno=line) if (
                    id(node) not in turns
                ):
                    found.append(f"{path.relative_to(root)}:{line}: a sleep in a test, use support.waiting")
                case ast.alias(name="sleep", lineno=line):
                    found.append(f"{path.relative_to(root)}:{line}: a sleep in a test, use support.waiting")
    return found


def _is_turn_of_the_loop(call: ast.Call) -> bool:
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def long_modules(root: Path) -> list[str]:
    """A module has at most 500 lines."""
    return [
        f"{path.relative_to(root)}: {lines} lines, {LONGEST_MODULE} are the limit: split it"
        for path in files_of(root, *CODE, suffix=".py")
        if (lines := len(path.read_text("utf-8").splitlines())) > LONGEST_MODULE
    ]


def long_functions(root: Path) -> list[str]:
    """A function has at most 60 lines, docstring not counted."""
    return [
        f"{path.relative_to(root)}:{node.lineno}: {node.name} has {lines} lines, {LONGEST_FUNCTION} are the limit"
        for path, tree in _trees(root, *CODE)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (lines := _length(node)) > LONGEST_FUNCTION
    ]


def unnamed_rooms(root: Path) -> list[str]:
    """Every room of a package has its place in the layers contract."""
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    found = []
    for package in PACKAGES:
        container = Path(package).name
        layers = [c["layers"] for c in contracts if c["type"] == "layers" and container in c["containers"]]
        named = set(re.findall(r"\w+", " ".join(" ".join(each) for each in layers)))
        for path in sorted((root / package).iterdir()) if (root / package).is_dir() else ():
            is_room = path.is_dir() and next(files_of(root, str(path.relative_to(root)), suffix=".py"), None)
            is_module = path.suffix == ".py" and path.stem != "__init__"
            if (is_room or is_module) and path.stem not in named:
                found.append(f"{path.relative_to(root)}: name this room in the layers contract of pyproject.toml")
    return found


def rooms_without_door(root: Path) -> list[str]:
    """Every folder with Python in a package is a package itself, or the import contracts would not see it."""
    folders = {path.parent for path in files_of(root, *PACKAGES, suffix=".py")}
    return [
        f"{folder.relative_to(root)}: add an __init__.py that says what the room is for"
        for folder in sorted(folders)
        if not (folder / "__init__.py").exists()
    ]


def busy_inits(root: Path) -> list[str]:
    """An `__init__.py` says what a package is and what it exports; it does no work on import."""
    harmless = ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign
    found = []
    for path, tree in _trees(root, *PRODUCT):
        if path.name != "__init__.py":
            continue
        for node in _top_statements(tree):
            is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            # Exports may be looked up lazily.
            is_hook = isinstance(node, ast.FunctionDef) and node.name in ("__getattr__", "__dir__")
            calls = not is_hook and any(isinstance(inner, ast.Call) for inner in ast.walk(node))
            if calls or not (is_docstring or is_hook or isinstance(node, harmless)):
                found.append(f"{path.relative_to(root)}:{node.lineno}: work on import, move it into a module")
    return found


def _top_statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield what a module does on import; of a choice between checkers and the interpreter, both sides."""
    for node in tree.body:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from (*node.body, *node.orelse)
            case _:
                yield node


def undocumented_tests(root: Path) -> list[str]:
    """Every test has a docstring that states the rule it proves."""
    return [
        f"{path.relative_to(root)}:{node.lineno}: {node.name} has no docstring: state the rule it proves"
        for path, tree in _trees(root, "tests")
        if path.name.startswith("test_")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]


def refused_words(root: Path) -> list[str]:
    """Names use the words of the glossary, and no second word for a thing that has one."""
    found = []
    for path, tree in _trees(root, *PRODUCT):
        for name, line in [(path.stem, 1), *_names(tree)]:
            words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
            found += [
                f"{path.relative_to(root)}:{line}: {name}: not {word!r}, the house word is {instead!r}"
                for word, instead in REFUSED_WORDS.items()
                if re.search(rf"(?:^|_){word}s?(?:$|_)", words)
            ]
    return found


def machine_traces(root: Path) -> list[str]:
    """The tree names no path of a machine it was written on, and no host of a package registry."""
    found = []
    for path in files_of(root):
        try:
            lines = path.read_text("utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, start=1):
            if trace := MACHINE_PATH.search(line) or REGISTRY_HOST.search(line):
                found.append(f"{path.relative_to(root)}:{number}: {trace.group()!r} belongs to one machine")
    return found


def uneven_versions(root: Path) -> list[str]:
    """The distribution and both packages carry one version."""
    version = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    return [
        f"{package}/__init__.py: __version__ must be {version!r} as in pyproject.toml"
        for package in PACKAGES
        if f'__version__ = "{version}"' not in (root / package / "__init__.py").read_text("utf-8")
    ]


def unpinned_dependencies(root: Path) -> list[str]:
    """Every dependency has one version in requirements/constraints.txt."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project.get("optional-dependencies", {}).values()
    wanted = [*project["dependencies"], *(line for extra in extras for line in extra)]
    text = (root / "requirements" / "constraints.txt").read_text("utf-8")
    pinned = {_distribution(line) for line in text.splitlines() if "==" in line}
    return [
        f"requirements/constraints.txt: {name} has no version there: make constraints"
        for name in sorted({_distribution(line) for line in wanted} - pinned)
    ]


RULES: tuple[Rule, ...] = (
    loose_files, packages_in_tests, stdlib_names, vague_names, sql_in_python, sleeps_in_tests, long_modules,
    long_functions, unnamed_rooms, rooms_without_door, busy_inits, undocumented_tests, refused_words, machine_traces,
    uneven_versions, unpinned_dependencies,
)  # fmt: skip


def _trees(root: Path, *folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for path in files_of(root, *folders, suffix=".py"):
        yield path, ast.parse(path.read_text("utf-8"), filename=str(path))


def _docstrings(tree: ast.Module) -> set[int]:
    """Return the identities of the nodes that are docstrings, or strings standing alone as comments."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function):
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def _names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield every name that a module gives, with its line; names that it only uses are somebody else's."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno


def _distribution(line: str) -> str:
    """Return the normalised name at the start of a requirement."""
    match = re.match(r"[\w.-]+", line)
    return re.sub(r"[-_.]+", "-", match.group()).lower() if match else ""
