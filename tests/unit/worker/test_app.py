"""An application: its name, its subscribers, selections of them."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headrace.domain.errors import BadDeclaration, BadName, NotFound
from headrace.domain.event import Event
from headrace.domain.mapping import TableMapping
from headrace.partitioning.keys import Stream
from headrace.subscribers.app import App
from headrace.subscribers.declare import on, projector, reactor


@projector("loans", partition_by=Stream())
class Loans:
    """A projector."""

    @on("BookLent")
    def lent(self, event: Event[Any]) -> None:
        """Do nothing."""


@reactor("reminders", group="mail")
class Reminders:
    """A reactor."""

    @on("BookLent")
    async def remind(self, event: Event[Any]) -> None:
        """Do nothing."""


@projector("loans")
class OtherLoans:
    """A projector with a name that is taken."""

    @on()
    def lent(self, event: Event[Any]) -> None:
        """Do nothing."""


def a_module(name: str, source: str, **globals_: Any) -> ModuleType:
    """Return a module that runs the source under a name, without a file."""
    module = ModuleType(name)
    vars(module).update(globals_, App=App, Loans=Loans)
    exec(source, vars(module))  # noqa: S102 - the module's name is what is under test
    return module


def test_app_binds_its_subscribers_in_order() -> None:
    """The mapping has the subscriptions by name, as they were given, and cannot be changed."""
    app = App(Reminders(), Loans(), name="library")

    assert list(app.subscribers) == ["reminders", "loans"]
    assert app.subscribers["loans"].name == "loans"
    with pytest.raises(TypeError):
        app.subscribers["x"] = app.subscribers["loans"]  # type: ignore[index]
    assert repr(app) == "<App 'library': reminders, loans>"


def test_declarations_carry_the_app() -> None:
    """What setup stores names the owner."""
    declarations = App(Loans(), Reminders(), name="library").declarations()

    assert [(each.name, each.app, each.partitioned) for each in declarations] == [
        ("loans", "library", True),
        ("reminders", "library", False),
    ]


def test_two_of_one_name_are_refused() -> None:
    """DEC-4: the same name twice is an error at the start that names it and both classes."""
    with pytest.raises(BadDeclaration, match=r"'loans'.*test_app\.Loans.*test_app\.OtherLoans"):
        App(Loans(), OtherLoans(), name="library")
    with pytest.raises(BadDeclaration, match="'loans'"):
        App(Loans(), Loans(), name="library")


def test_classes_and_strangers_are_refused() -> None:
    """A class in place of its object, and an object of an unmarked class, are named with the fix."""
    with pytest.raises(BadDeclaration, match=r"Loans\(\)"):
        App(Loans, name="library")
    with pytest.raises(BadDeclaration, match=r"int is no subscriber.*@projector"):
        App(7, name="library")


def test_name_is_the_top_level_package_of_the_module() -> None:
    """Without a name, the package of the module that makes the app owns the subscriptions."""
    assert a_module("shop.read.models", "app = App(Loans())").app.name == "shop"
    assert a_module("shop", "app = App(Loans())").app.name == "shop"
    assert a_module("shop.make", "def make(): return App(Loans())\napp = make()").app.name == "shop"
    assert a_module("shop.read", "app = App(Loans(), name='other')").app.name == "other"


def test_subclass_does_not_change_the_name() -> None:
    """The constructors of subclasses, in whatever package, are not taken for the maker."""
    base = a_module("framework.apps", "class Base(App):\n def __init__(self, *a):\n  super().__init__(*a)")
    inner = a_module(
        "headrace.runtime.apps", "class Inner(B):\n def __init__(self, *a):\n  super().__init__(*a)", B=base.Base
    )

    assert a_module("shop.read", "app = Made(Loans())", Made=inner.Inner).app.name == "shop"
    assert a_module("shop.read", "app = Made(Loans())", Made=base.Base).app.name == "shop"


def test_name_of_a_module_that_is_run(tmp_path: Path) -> None:
    """`python -m stall.views` is stall, `python kiosk.py` is kiosk."""
    source = "from headrace.subscribers.app import App\nprint(App().name)\n"
    package = tmp_path / "stall"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "views.py").write_text(source)
    (tmp_path / "kiosk.py").write_text(source)

    def printed(*arguments: str) -> str:
        done = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, check=True, text=True)
        return done.stdout.strip()

    assert printed("-m", "stall.views") == "stall"
    assert printed("kiosk.py") == "kiosk"


def test_app_without_a_module_needs_a_name() -> None:
    """Where no module makes the app, as in an interactive session, the message asks for a name."""
    with pytest.raises(BadDeclaration, match="name="):
        a_module("__main__", "app = App(Loans())", __spec__=None)


@pytest.mark.parametrize("name", ["", "a#b", " a"])
def test_app_name_is_checked(name: str) -> None:
    """A name that could not be stored or addressed is refused."""
    with pytest.raises(BadName, match="app name"):
        App(Loans(), name=name)


def test_select_is_or_within_and_between() -> None:
    """CMD-12: names [a, b] and group g gives the members of both sets, in the app's order."""
    app = App(Loans(), Reminders(), name="library")

    def names(*arguments: Any) -> list[str]:
        return [bound.name for bound in app.select(*arguments)]

    assert names() == names(None, None) == ["loans", "reminders"]
    assert names(["reminders", "loans"]) == ["loans", "reminders"]
    assert names(["reminders", "loans"], ["mail"]) == ["reminders"]
    assert names(["loans"], ["mail"]) == []
    assert names(None, ["projector"]) == ["loans"]
    assert names("loans") == ["loans"]
    assert names([]) == []


def test_select_names_what_is_missing() -> None:
    """An unknown name or group is an error that says what there is."""
    app = App(Loans(), Reminders(), name="library")

    with pytest.raises(NotFound, match="no subscriber 'lones'; there is 'loans', 'reminders'"):
        app.select(["loans", "lones"])
    with pytest.raises(NotFound, match="no group 'x'; there is 'projector', 'mail'"):
        app.select(groups=["x"])


def test_app_keeps_the_mapping_of_its_event_table() -> None:
    """Somebody else's event table is named with the app; without one, ours is read."""
    mapping = TableMapping(table="log", schema="orders")

    assert App(Loans(), name="library", events=mapping).events is mapping
    assert App(Loans(), name="library").events is None


def test_app_may_be_empty() -> None:
    """An app whose last subscriber was taken out still has its name."""
    app = App(name="library")

    assert app.select() == ()
    assert repr(app) == "<App 'library': no subscribers>"
