"""From ``module:attribute`` on a command line to the application.

Everything that can go wrong here is a person's typing or a person's module, so each case has one
clear message with the fix; errors of the user's own code keep their cause and name file and line.
"""

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace.domain.errors import UsageError
from headrace.failures.text import text_of
from headrace.subscribers.app import App


def load_app(reference: str) -> App:
    """Return the application that ``module:attribute`` names, importable from the current folder.

    Raises:
        UsageError: the reference cannot be read, the module cannot be found or raises at import, or
            the attribute is missing or no application.

    """
    module_name, attribute = _parsed(reference)
    module = _imported(module_name)
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise UsageError(f"{module_name} has no {attribute!r}: {_apps_in(module)}") from None
    if not isinstance(found, App):
        raise UsageError(
            f"{reference} is {_kind_of(found)}, not an App: {_apps_in(module)}; "
            "an application is made by App(subscriber, ...)"
        )
    return found


def _parsed(reference: str) -> tuple[str, str]:
    module, colon, attribute = reference.partition(":")
    example = "write module:attribute, such as shop.read_models:app"
    if not colon or not module or not attribute:
        raise UsageError(f"{reference!r} does not name an app: {example}")
    if module.endswith(".py") or "/" in module or "\\" in module:
        dotted = module.removesuffix(".py").replace("\\", "/").strip("./").replace("/", ".")
        raise UsageError(f"{reference!r} names a file: write {dotted}:{attribute}, importable from the current folder")
    for part in (*module.split("."), *attribute.split(".")):
        if not part.isidentifier():
            raise UsageError(f"{reference!r} does not name an app, {part!r} is no name: {example}")
    return module, attribute


def _imported(name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name:
            raise _not_found(name, error.name, folder, error) from error
        raise UsageError(f"importing {name} failed with {_first_line(error)}{_place(name, error)}") from error


def _not_found(name: str, missing: str, folder: str, error: ModuleNotFoundError) -> UsageError:
    if missing != name and not name.startswith(f"{missing}."):
        return UsageError(
            f"importing {name} needs the module {missing!r}, which cannot be found{_place(name, error)}: "
            "install it, or correct the import"
        )
    inside = "" if missing == name else f" (there is no {missing!r})"
    return UsageError(
        f"no module {name!r}{inside}: it must be importable from the current folder, {folder}, or be installed"
    )


def _place(name: str, error: BaseException) -> str:
    """Return file and line in the user's code: the last frame in the package of the module, else the last one."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    package = name.partition(".")[0]
    place = ""
    own = False
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if module == __name__ or module.partition(".")[0] == "importlib":
            continue
        is_own = module.partition(".")[0] == package
        if is_own or not own:
            place, own = f" ({frame.f_code.co_filename}, line {line})", is_own
    return place


def _first_line(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "a call of sys.exit(); put what is not definitions under `if __name__ == '__main__'`"
    # Settings are read at import, so the error may well quote a connection string.
    text = text_of(error)
    first = text.message.strip().partition("\n")[0]
    return f"{text.type}: {first}" if first else text.type


def _apps_in(module: ModuleType) -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, App)]
    if not apps:
        return "there is no App in it"
    return f"the apps in it are {', '.join(f'{module.__name__}:{name}' for name in apps)}"


def _kind_of(found: object) -> str:
    if isinstance(found, type):
        return f"the class {found.__qualname__}"
    if callable(found):
        return "a function"
    return f"of type {type(found).__qualname__}"
