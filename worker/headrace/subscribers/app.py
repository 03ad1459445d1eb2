"""An application: the subscribers of one code base, bound and named.

The name decides which rows of a database are this application's, so it must not change by
accident. No database is touched here; what is wrong with a subscriber is said when the
application is made, that is at the import of its module. The composition root adds the engine.
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FrameType, MappingProxyType

from headrace.domain.errors import BadDeclaration, NotFound
from headrace.domain.ids import checked_name
from headrace.domain.mapping import TableMapping
from headrace.domain.subscription import Declaration
from headrace.subscribers.binding import BoundSubscriber, bind

_OWN_PACKAGE = __name__.partition(".")[0]


class App:
    """The subscribers that are deployed together.

    ``name`` owns their subscriptions in a database; without it, it is the top-level package of the
    module that makes the application. ``events`` maps somebody else's event table; without it the
    subscribers read ``headrace.events``.
    """

    def __init__(self, *subscribers: object, name: str | None = None, events: TableMapping | None = None) -> None:
        """Bind the subscribers.

        Raises:
            BadName: the name cannot be one.
            BadDeclaration: a subscriber that cannot be used as written, two of one name, or no name
                to be found.

        """
        self._name = checked_name(_name_of_caller(self) if name is None else name, "app")
        self._subscribers = _by_name(bind(subscriber) for subscriber in subscribers)
        self.events = events

    @property
    def name(self) -> str:
        """The name that owns the subscriptions."""
        return self._name

    @property
    def subscribers(self) -> Mapping[str, BoundSubscriber]:
        """The bound subscribers by name, in the order given."""
        return MappingProxyType(self._subscribers)

    def declarations(self) -> list[Declaration]:
        """Return what is stored of the subscribers at setup, in the order given."""
        return [bound.declaration(self._name) for bound in self._subscribers.values()]

    def select(
        self, names: Iterable[str] | None = None, groups: Iterable[str] | None = None
    ) -> tuple[BoundSubscriber, ...]:
        """Return the subscribers that have one of ``names`` and are in one of ``groups``; None is all.

        Raises:
            NotFound: no subscriber has that name, or is in that group; the message says what there is.

        """
        wanted_names = self._known(names, "subscriber", self._subscribers)
        known_groups = dict.fromkeys(bound.group for bound in self._subscribers.values())
        wanted_groups = self._known(groups, "group", known_groups)
        return tuple(
            bound for bound in self._subscribers.values() if bound.name in wanted_names and bound.group in wanted_groups
        )

    def _known(self, wanted: Iterable[str] | None, what: str, known: Iterable[str]) -> set[str]:
        there = dict.fromkeys(known)
        if wanted is None:
            return set(there)
        asked = {wanted} if isinstance(wanted, str) else set(wanted)
        unknown = sorted(asked - set(there))
        if unknown:
            raise NotFound(
                f"app {self._name!r} has no {what} {', '.join(map(repr, unknown))}; "
                f"there is {', '.join(map(repr, there)) or 'none'}"
            )
        return asked

    def __repr__(self) -> str:
        """Name the application and its subscribers."""
        return f"<{type(self).__name__} {self._name!r}: {', '.join(self._subscribers) or 'no subscribers'}>"


def _by_name(bound: Iterable[BoundSubscriber]) -> dict[str, BoundSubscriber]:
    found: dict[str, BoundSubscriber] = {}
    for each in bound:
        if each.name in found:
            first, second = (type(one.subscriber) for one in (found[each.name], each))
            raise BadDeclaration(
                f"two subscribers are named {each.name!r}: {first.__module__}.{first.__qualname__} and "
                f"{second.__module__}.{second.__qualname__}; give one of them another name"
            )
        found[each.name] = each
    return found


def _name_of_caller(app: App) -> str:
    """Return the top-level package of the module whose code makes ``app``."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - who calls is the question
    while frame is not None and _is_making(frame, app):
        frame = frame.f_back
    module = frame.f_globals if frame is not None else {}
    name = str(module.get("__name__", ""))
    if name == "__main__":
        # `python -m shop.app` knows its module; a file that is run does not, its own name will do.
        spec = module.get("__spec__")
        name = spec.name if spec is not None else Path(module.get("__file__", "")).stem
    name = name.partition(".")[0]
    if not name:
        raise BadDeclaration('the app is made outside of a module and has no name: write App(…, name="shop")')
    return name


def _is_making(frame: FrameType, app: App) -> bool:
    """Tell whether a frame belongs to this package, or to the constructor of the app's own class."""
    if str(frame.f_globals.get("__name__", "")).partition(".")[0] == _OWN_PACKAGE:
        return True
    code = frame.f_code
    return code.co_name == "__init__" and code.co_argcount > 0 and frame.f_locals.get(code.co_varnames[0]) is app
