"""Loading `module:attribute`: the app, or one clear message with the fix."""

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from headrace.domain.errors import BadDeclaration, UsageError
from headrace.subscribers.app import App
from headrace.subscribers.loader import load_app

APP = """
from typing import Any
from headrace.domain.event import Event
from headrace.subscribers.app import App
from headrace.subscribers.declare import on, projector

@projector("loans")
class Loans:
    @on("BookLent")
    def lent(self, event: Event[Any]) -> None: ...

app = App(Loans())
second = App(Loans(), name="second")
word = "word"

class Holder:
    app = second

def make(): return app
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder; modules that a test imports from it are forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, name: str, source: str) -> None:
    """Write a module, and the packages around it."""
    *packages, module = name.split(".")
    for package in packages:
        folder = folder / package
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").touch()
    (folder / f"{module}.py").write_text(dedent(source))


def test_app_is_loaded_from_the_current_folder(folder: Path) -> None:
    """A module of the current folder is importable, in a package and alone; its app has its package's name."""
    write(folder, "stall.views", APP)
    write(folder, "kiosk", APP)

    assert load_app("stall.views:app").name == "stall"
    assert isinstance(load_app("kiosk:app"), App)
    assert load_app("kiosk:Holder.app").name == "second"


def test_current_folder_is_added_once_and_in_front(folder: Path) -> None:
    """However often apps are loaded, the folder is on the path once; a path that has it already stays as it is."""
    write(folder, "kiosk", APP)
    load_app("kiosk:app")
    load_app("kiosk:second")

    assert sys.path[0] == str(folder)
    assert sys.path.count(str(folder)) == 1


@pytest.mark.parametrize(
    "reference", ["kiosk", "", ":", ":app", "kiosk:", "ki osk:app", "kiosk:a-b", ".kiosk:app", "a..b:x"]
)
def test_unreadable_references_show_the_form(folder: Path, reference: str) -> None:
    """No colon, an empty part, no name: the message shows how to write it."""
    with pytest.raises(UsageError, match="module:attribute, such as"):
        load_app(reference)


def test_file_names_are_turned_into_module_names(folder: Path) -> None:
    """A path in place of a module: the message has the module name to write."""
    with pytest.raises(UsageError, match=r"names a file: write stall\.views:app"):
        load_app("./stall/views.py:app")
    with pytest.raises(UsageError, match=r"names a file: write kiosk:app"):
        load_app("kiosk.py:app")


def test_missing_module_is_named_with_the_folder(folder: Path) -> None:
    """The module, and the package in which it should have been, are named, and where was looked."""
    write(folder, "stall.views", APP)

    with pytest.raises(UsageError, match=r"no module 'kiosk': it must be importable from the current folder, /"):
        load_app("kiosk:app")
    with pytest.raises(UsageError, match=r"no module 'stall\.vews':"):
        load_app("stall.vews:app")
    with pytest.raises(UsageError, match=r"no module 'kiosk\.views' \(there is no 'kiosk'\)"):
        load_app("kiosk.views:app")


def test_missing_dependency_is_not_taken_for_a_missing_app(folder: Path) -> None:
    """A module that the user's module needs is named, with the place of the import."""
    write(folder, "kiosk", "import json\nimport no_such_dependency.part\n")

    with pytest.raises(UsageError, match=r"kiosk needs the module 'no_such_dependency'.*kiosk\.py, line 2\)"):
        load_app("kiosk:app")


def test_errors_at_import_keep_cause_and_place(folder: Path) -> None:
    """What the user's module raises is the cause; file and line are the user's own, not a library's."""
    write(folder, "stall.views", "from stall import deeper\n")
    write(folder, "stall.deeper", "import json\n\njson.loads('{')\n")

    with pytest.raises(
        UsageError, match=r"importing stall\.views failed with .*JSONDecodeError.*deeper\.py, line 3\)"
    ) as caught:
        load_app("stall.views:app")
    assert isinstance(caught.value.__cause__, ValueError)


def test_syntax_errors_name_their_line(folder: Path) -> None:
    """A module that cannot be parsed: file and line of the error itself."""
    write(folder, "kiosk", "x = 1\ndef broken(:\n")

    with pytest.raises(UsageError, match=r"SyntaxError.*kiosk\.py, line 2\)"):
        load_app("kiosk:app")


def test_scripts_that_exit_at_import_are_named(folder: Path) -> None:
    """A module that ends the process when imported does not end the command without a word."""
    write(folder, "kiosk", "import sys\nsys.exit(3)\n")

    with pytest.raises(UsageError, match=r"sys\.exit.*__main__.*kiosk\.py, line 2\)"):
        load_app("kiosk:app")


def test_secrets_in_import_errors_are_masked(folder: Path) -> None:
    """A connection string in the error of a module does not reach the terminal with its password."""
    write(folder, "kiosk", "raise RuntimeError('cannot use postgres://u:hunter2@h/db')\n")

    with pytest.raises(UsageError, match=r"postgres://u:\*\*\*@h/db") as caught:
        load_app("kiosk:app")
    assert "hunter2" not in str(caught.value)


def test_bad_declarations_pass_as_they_are(folder: Path) -> None:
    """A subscriber that cannot be used already has its clear message."""
    write(folder, "kiosk", APP.replace("event: Event[Any]", "event: int"))

    with pytest.raises(BadDeclaration, match=r"Loans\.lent: nothing can fill the parameter 'event: int'"):
        load_app("kiosk:app")


def test_missing_attribute_lists_the_apps(folder: Path) -> None:
    """The apps that are there are listed as they are written; no app is said, too."""
    write(folder, "kiosk", APP)
    write(folder, "bare", "x = 1\n")

    with pytest.raises(UsageError, match="has no 'ap': the apps in it are kiosk:app, kiosk:second"):
        load_app("kiosk:ap")
    with pytest.raises(UsageError, match="has no 'app': there is no App in it"):
        load_app("bare:app")


@pytest.mark.parametrize(
    ("attribute", "kind"), [("word", "of type str"), ("make", "a function"), ("Loans", "the class Loans")]
)
def test_attribute_that_is_no_app_is_named(folder: Path, attribute: str, kind: str) -> None:
    """A value, a function, a class in place of the app: what it is, and what could have been meant."""
    write(folder, "kiosk", APP)

    with pytest.raises(UsageError, match=f"is {kind}, not an App: the apps in it are kiosk:app"):
        load_app(f"kiosk:{attribute}")
