"""One subscriber in two versions of it, with set-up hooks that differ: `old`, and two whose hooks never end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from headrace import App, Connection, Event, Stream, on, projector, setup

Hook = Callable[[], Awaitable[Any]]


async def nothing() -> None:
    """Do nothing."""


async def hang() -> None:
    """Never end."""
    await asyncio.Event().wait()


def subscriber(name: str, hook: Hook, *types: str) -> object:
    """Return a subscriber with this hook that wants these types."""

    @projector(name, partition_by=Stream())
    class Subscriber:
        @setup
        async def create(self, db: Connection) -> None:
            await hook()

        @on(*types)
        async def see(self, event: Event[Any]) -> None:
            return

    return Subscriber()


def app_of(hook: Hook, *types: str) -> App:
    """Return a version of the app."""
    return App(subscriber("p", hook, *types), name="shop")


old = app_of(nothing, "A")
old_hanging = app_of(hang, "A")
new_hanging = app_of(hang, "A", "B")
