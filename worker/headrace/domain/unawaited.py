"""Calls on a handler's connection that nobody has awaited: the coroutine is made, the statement never sent.

Python itself only warns of it, when the position has long moved past the event. So a connection keeps what its methods
made, and whoever ends the handler asks here before anything commits. Nothing is run here.
"""

from collections.abc import Coroutine
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, TypeVar

from headrace.domain.errors import NotAllowed

T = TypeVar("T")
KEPT = 64
SHOWN = 60


class Calls:
    """The calls of one connection since it was last looked at."""

    __slots__ = ("_made", "_sweep_at")

    def __init__(self) -> None:
        """Begin without a call."""
        self._made: list[tuple[str, str, Coroutine[Any, Any, Any]]] = []
        self._sweep_at = KEPT

    def made(self, name: str, query: str, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Note a call of the method ``name``, and return its coroutine as it is."""
        self._made.append((name, query, work))
        if len(self._made) >= self._sweep_at:
            # A batch handler may make any number of them: what has begun need not be kept.
            self._made = self._never_begun()
            self._sweep_at = max(KEPT, 2 * len(self._made))
        return work

    def forget(self) -> None:
        """Give up what was never awaited, without Python's own warning."""
        made, self._made = self._made, []
        for _, _, work in made:
            if getcoroutinestate(work) == CORO_CREATED:
                work.close()

    def require_awaited(self) -> None:
        """Return when each call was awaited; nothing of them is kept either way.

        Raises:
            NotAllowed: one was not, and the message names it.

        """
        if not self._made:
            return
        forgotten = self._never_begun()
        self.forget()
        if forgotten:
            name, query, _ = forgotten[0]
            text = " ".join(query.split())
            shown = text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
            others = f" (and {len(forgotten) - 1} more)" if len(forgotten) > 1 else ""
            raise NotAllowed(
                f"{name}({shown!r}) was called on this handler's connection and never awaited{others}, so it was not "
                "sent: await it"
            )

    def _never_begun(self) -> list[tuple[str, str, Coroutine[Any, Any, Any]]]:
        return [call for call in self._made if getcoroutinestate(call[2]) == CORO_CREATED]
