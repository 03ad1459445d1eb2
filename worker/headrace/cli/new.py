"""`headrace new`: a small project to start from, whose tests pass as it is.

What it consists of lies in `templates/project/` as files, not as text in here. A template has the name of what it
becomes with `.tmpl` behind it, so that no tool takes it for code of ours; `{{words}}` in it are replaced.
"""

import json
import keyword
import re
import sys
from collections.abc import Iterator
from importlib import resources
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Annotated
from urllib.parse import unquote, urlsplit

import typer

from headrace import __version__
from headrace.cli.output import say
from headrace.domain.errors import UsageError

SUFFIX = ".tmpl"
LONGEST_NAME = 40
NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
PLAIN_PATH = re.compile(r"/[\w./ +@-]*")
TAKEN = {
    "headrace": "that is Headrace itself",
    "headrace_operator": "that is a package of Headrace",
    "test": "Python has a module of that name",
    "tests": "the folder of the tests has that name",
}


def new_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the project and of its folder.")],
) -> None:
    """Make a small project to start from: a subscriber with its tests, a Makefile, an image, a manifest."""
    made = make_project(name, Path.cwd())
    for path in sorted(made):
        say(f"  {name}/{path}")
    say(f"{name} is made. Go on with:")
    say(f"  cd {name}")
    say("  make setup   # makes .venv with headrace and pytest; leave it out where both are installed")
    say("  make test    # runs its tests")
    say("  make dev     # runs it; saved files are taken up at once")


def make_project(name: str, parent: Path) -> list[PurePosixPath]:
    """Write the project into a folder of its name and return the files, relative to that.

    Raises:
        UsageError: the name cannot be one, or the folder is there and not empty; nothing was written.

    """
    package = _package_of(name)
    folder = parent / name
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already and not empty: choose another name, or empty it")
    _check_free(name, package)
    words = {"name": name, "package": package, "dashed": name.replace("_", "-"), "version": __version__}
    words["source"] = installed_from()
    made = []
    for parts, text in _templates(resources.files("headrace.cli") / "templates" / "project"):
        path = PurePosixPath(*(_named(part, package) for part in parts))
        target = folder / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_filled(text, words), "utf-8")
        except OSError as error:
            raise UsageError(f"{target} cannot be written: {error.strerror}") from error
        made.append(path)
    return made


def installed_from() -> str:
    """Return what pip is to install Headrace from again: the folder that it was installed from, or else its name."""
    try:
        origin = json.loads(distribution("headrace").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return "headrace"
    address = urlsplit(origin.get("url", ""))
    folder = unquote(address.path)
    # Make and the shell would take apart what has other characters.
    is_usable = "dir_info" in origin and address.scheme == "file" and PLAIN_PATH.fullmatch(folder)
    return folder if is_usable and Path(folder, "pyproject.toml").is_file() else "headrace"


def _package_of(name: str) -> str:
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise UsageError(
            f"{name!r} cannot name a project: use small letters, digits and single - or _, a letter first, at most "
            f"{LONGEST_NAME} characters, such as shop or shop-reports"
        )
    return name.replace("-", "_")


def _check_free(name: str, package: str) -> None:
    reason = TAKEN.get(package)
    if reason is None and keyword.iskeyword(package):
        reason = "that is a word of the language Python"
    if reason is None and package in sys.stdlib_module_names:
        reason = "Python has a module of that name"
    if reason is not None:
        raise UsageError(f"{name!r} cannot name a project: {reason}; choose another name")
    spec = find_spec(package)
    if spec is not None and spec.origin is not None:
        raise UsageError(f"{name!r} cannot name a project: a module {package!r} is installed; choose another name")


def _templates(folder: Traversable, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of each template, in parts, and its text."""
    for entry in folder.iterdir():
        parts = (*above, entry.name)
        if entry.is_dir():
            yield from _templates(entry, parts)
        elif entry.name.endswith(SUFFIX):
            yield parts, entry.read_text("utf-8")


def _named(part: str, package: str) -> str:
    named = part.removesuffix(SUFFIX)
    return {"package": package, "gitignore": ".gitignore"}.get(named, named)


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace("{{" + word + "}}", value)
    return text
