"""The fixture `world`: all ports of one implementation, in memory and in PostgreSQL."""

import importlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from support import databases
from support.databases import Database
from support.worlds import World, WorldMaker, memory_world


@pytest.fixture(scope="session")
def world_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """The database of all worlds, emptied for each: several times faster than a clone for each."""
    version = databases.default_version()
    cluster = request.getfixturevalue(version.replace("pg", "cluster"))
    template = request.getfixturevalue(version.replace("pg", "template"))
    with databases.cloned(cluster, template, "worlds") as database:
        yield database


@pytest.fixture(params=["memory", "postgres"])
def world(request: pytest.FixtureRequest) -> WorldMaker:
    """Make the worlds of one implementation; their invariants are checked when a test has passed."""
    if request.param == "memory":
        return checked(memory_world)
    database = request.getfixturevalue("world_database")
    # By name and late: the twins are tested where there is no PostgreSQL.
    postgres_world = importlib.import_module("support.postgres_world").postgres_world
    return checked(lambda: postgres_world(database))


def checked(make: WorldMaker) -> WorldMaker:
    """Return a maker whose worlds are checked when a test has passed."""

    @asynccontextmanager
    async def checked_world() -> AsyncIterator[World]:
        async with make() as made:
            yield made
            await made.check()

    return checked_world
