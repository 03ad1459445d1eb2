"""The pages say nothing about the tree that is not so: paths, links, names of arrows, variables, metrics, commands.

Each check takes the root of a tree, so that a broken one can be shown to it. It finds what a reader would stumble over.
"""

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import headrace
from headrace.settings import Settings, variable
from headrace.telemetry.metrics import Metrics

Check = Callable[[Path], list[str]]

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")  # pictures too
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ARROW = re.compile(r"-->.*: *(\w+)\(\) *$", re.MULTILINE)
SENTENCE = re.compile(r"[a-z]+(,? [a-z]+){2,}")
OF_POSTGRESQL = {"idle in transaction"}
TABLE_TITLE = "From idea to file"
FOLDERS = ("worker", "operator", "tests", "docs", "benchmarks", "examples", "scripts", "requirements", "charts", "crds")


def pages(root: Path) -> Iterator[Path]:
    """Yield the pages that people read."""
    yield from sorted((root / "docs").rglob("*.md"))
    yield from sorted((root / "examples").rglob("*.md"))
    yield from (root / name for name in ("README.md", "CONTRIBUTING.md") if (root / name).exists())


def broken_links(root: Path) -> list[str]:
    """Every relative link leads to a file of the tree, and to a heading of it where it names one."""
    found = []
    for page in pages(root):
        for target in LINK.findall(FENCED.sub("", page.read_text("utf-8"))):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            file = (page.parent / name).resolve() if name else page
            if not file.exists():
                found.append(f"{page.relative_to(root)}: {target} is not there")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                found.append(f"{page.relative_to(root)}: {target} names no heading")
    return found


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as they are commonly made: small letters, blanks to hyphens."""
    titles = HEADING.findall(FENCED.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def missing_paths(root: Path) -> list[str]:
    """Every path that a page writes as code, from a top folder on, exists; a star stands for something.

    CONTRIBUTING also names folders that are not there, because they must not be or are not yet.
    """
    return [
        f"{page.relative_to(root)}: {text} is not there"
        for page in pages(root)
        if page.name != "CONTRIBUTING.md"
        for text in CODE.findall(FENCED.sub("", page.read_text("utf-8")))
        if text.partition("/")[0] in FOLDERS and re.fullmatch(r"[\w./*-]+", text) and not any(root.glob(text))
    ]


def unmapped_rooms(root: Path) -> list[str]:
    """The table from idea to file names something in every room of the worker."""
    page = root / "docs" / "architecture.md"
    text = page.read_text("utf-8") if page.exists() else ""
    _, _, table = text.partition(f"## {TABLE_TITLE}\n")
    named = {
        path.split("/")[2].removesuffix(".py") for path in CODE.findall(table) if path.startswith("worker/headrace/")
    }
    rooms = {path.parent.name for path in (root / "worker" / "headrace").glob("*/__init__.py")}
    return [f"docs/architecture.md: the table leaves out the room {room}" for room in sorted(rooms - named)]


def unknown_arrows(root: Path) -> list[str]:
    """Every arrow of a state picture that carries a call is a function of the worker or of its schema."""
    code = "\n".join(path.read_text("utf-8") for path in sorted((root / "worker").rglob("*.py")))
    page = root / "docs" / "state-machines.md"
    drawn = (
        [body for kind, body in FENCED.findall(page.read_text("utf-8")) if kind == "mermaid"] if page.exists() else []
    )
    names = sorted({name for picture in drawn for name in ARROW.findall(picture)})
    return [f"docs/state-machines.md: {name}() is no function" for name in names if f"def {name}(" not in code]


def unsaid_sentences(root: Path) -> list[str]:
    """Every sentence that the runbook quotes is said somewhere in the code."""
    page = root / "docs" / "runbook.md"
    quoted = CODE.findall(FENCED.sub("", page.read_text("utf-8"))) if page.exists() else []
    code = "\n".join(path.read_text("utf-8") for path in sorted((root / "worker").rglob("*.py")))
    # A long message is written in several pieces.
    said = re.sub(r"""["']\s*f?["']""", "", code)
    return [
        f"docs/runbook.md: nothing says {text!r}"
        for text in quoted
        if SENTENCE.fullmatch(text) and text not in said and text not in OF_POSTGRESQL
    ]


CHECKS: list[Check] = [broken_links, missing_paths, unmapped_rooms, unknown_arrows, unsaid_sentences]

# Each of these files, put into a tree that is sound otherwise, is caught by the check named.
BROKEN: list[tuple[Check, str, str]] = [
    (broken_links, "docs/b.md", "see [there](gone.md)"),
    (broken_links, "docs/deep/b.md", "see [there](a.md)"),
    (broken_links, "docs/b.md", "see [there](a.md#no-such-thing)"),
    (broken_links, "docs/b.md", "# Here\n\nsee [above](#there)"),
    (broken_links, "README.md", "see [there](docs/gone.md)"),
    (broken_links, "README.md", "![a picture](docs/gone.svg)"),
    (missing_paths, "docs/b.md", "see `worker/headrace/gone.py`"),
    (missing_paths, "docs/b.md", "see `tests/gone/*.py`"),
    (missing_paths, "README.md", "see `docs/gone.md`"),
    (unmapped_rooms, "worker/headrace/mill/__init__.py", ""),
    (unknown_arrows, "docs/state-machines.md", "```mermaid\na --> b: gone()\n```\n"),
    (unsaid_sentences, "docs/runbook.md", "It says `the mill is dry`."),
]
HARMLESS: list[tuple[Check, str, str]] = [
    (broken_links, "docs/b.md", "# One two, three\n\n[a](#one-two-three) [b](https://example.com/x) [c](a.md#a-page)"),
    (broken_links, "docs/b.md", "```\n[a](gone.md)\n```\n"),
    (missing_paths, "docs/b.md", "`worker/headrace/engine/*.py`, `tests/` and `gone/a.py`, `worker NAME`"),
    (unknown_arrows, "docs/state-machines.md", "```mermaid\na --> b: start()\nb --> a: time passes\n```\n"),
    (unsaid_sentences, "docs/runbook.md", "It says `the mill runs`, is `idle in transaction` or `a word`."),
]


@pytest.fixture
def sound(tmp_path: Path) -> Callable[[str, str], Path]:
    """A small tree whose pages are right, with one file put in or replaced."""
    files = {
        "README.md": "See [the page](docs/a.md).",
        "docs/a.md": "# A page\n",
        "docs/architecture.md": f"## {TABLE_TITLE}\n\n| idea | `worker/headrace/engine/lane.py` |\n",
        "worker/headrace/engine/__init__.py": "",
        "worker/headrace/engine/lane.py": "def start() -> str:\n    return 'the mill ' 'runs'\n",
        "tests/test_a.py": "",
    }

    def build(name: str, text: str) -> Path:
        for each, content in (files | {name: text}).items():
            (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / each).write_text(content, "utf-8")
        return tmp_path

    return build


def identity(value: object) -> str:
    """Name a case by its check."""
    return value.__name__ if inspect.isfunction(value) else ""


@pytest.mark.parametrize("check", CHECKS, ids=identity)
def test_the_pages_are_right(check: Check) -> None:
    """No page of this tree names something that is not there."""
    assert check(ROOT) == []


@pytest.mark.parametrize(("check", "name", "text"), BROKEN, ids=identity)
def test_a_wrong_page_is_caught(sound: Callable[[str, str], Path], check: Check, name: str, text: str) -> None:
    """The check finds the one thing that is wrong."""
    assert len(check(sound(name, text))) == 1


@pytest.mark.parametrize(("check", "name", "text"), HARMLESS, ids=identity)
def test_a_right_page_passes(sound: Callable[[str, str], Path], check: Check, name: str, text: str) -> None:
    """The check has no false alarm on these."""
    assert check(sound(name, text)) == []


def test_every_page_is_linked_from_somewhere() -> None:
    """A page that no other page links to would not be found."""
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in pages(ROOT)
        for target in LINK.findall(page.read_text("utf-8"))
    }

    assert [
        page.relative_to(ROOT).as_posix() for page in pages(ROOT) if page.parts[-2] == "docs" and page not in linked
    ] == []


def test_the_pages_list_every_variable() -> None:
    """The page of the settings names the variables that are read, all of them and no other."""
    named = set(re.findall(r"\bHEADRACE_[A-Z_]+", section(REFERENCE / "settings.md", "Environment")))

    assert named == {variable(field) for field in Settings.model_fields}


def test_the_pages_list_every_metric() -> None:
    """The page of the metrics names what a worker shows, all of it and nothing else."""
    families = {family.name for family in Metrics().registry.collect()}
    counters = {family.name for family in Metrics().registry.collect() if family.type == "counter"}
    named = set(re.findall(r"`(headrace_\w+)", section(REFERENCE / "metrics.md", "Metrics")))

    assert named == {f"{name}_total" if name in counters else name for name in families}


def test_the_pages_list_every_public_name() -> None:
    """The page of the Python names describes each that `headrace` offers."""
    described = set(re.findall(r"^::: [\w.]+\.(\w+)$", (REFERENCE / "python.md").read_text("utf-8"), re.MULTILINE))

    assert set(headrace.__all__) - described == set()


def test_the_page_of_the_commands_is_up_to_date() -> None:
    """The page says what `--help` says; `make reference` writes it."""
    script = ROOT / "scripts" / "command_reference.py"
    done = subprocess.run([sys.executable, script, "--check"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_every_page_is_in_the_site() -> None:
    """A page that the site's menu leaves out would not be found there."""
    menu = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]

    assert [page for page in paths_below_docs() if page not in menu.split()] == []


def paths_below_docs() -> list[str]:
    """Return the pages of the site, as its menu writes them."""
    docs = ROOT / "docs"
    return [page.relative_to(docs).as_posix() for page in sorted(docs.rglob("*.md"))]


def section(page: Path, title: str) -> str:
    """Return the part of a page under a heading."""
    _, _, rest = page.read_text("utf-8").partition(f"# {title}\n")
    return re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]
