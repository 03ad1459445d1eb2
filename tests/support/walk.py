"""A random walk through the protocol, taken by several implementations in step.

Each step is one command with arguments drawn from a seed: what it answers, what it refuses, what can
be seen afterwards and which invariants hold must be the same everywhere. Partition ids and the order
of rows that one statement writes are nobody's promise, so commands name keys, and after each step the
rows that became due together are put in order by key.
"""

import random
from collections.abc import Sequence
from dataclasses import fields

from headrace.domain.errors import HeadraceError
from headrace.domain.ids import Position
from headrace.testing.invariants import LONGEST_TTL, broken_invariants
from support.observed import Observed, observe
from support.walk_people import PeopleCommands
from support.walk_routing import RoutingCommands
from support.walk_sides import KINDS, UNIT, Command, Kind, Maker, Side, Undo, error_name
from support.walk_work import WorkCommands
from support.worlds import World

WEIGHTS = {
    "append": 12,
    "hole": 1,
    "delete": 1,
    "route": 12,
    "read": 3,
    "store": 4,
    "pass": 1,
    "claim": 14,
    "claim log": 6,
    "load": 14,
    "flush": 16,
    "transaction": 6,
    "fail": 8,
    "slow": 3,
    "leave": 4,
    "hold": 3,
    "unhold": 3,
    "release": 4,
    "renew": 2,
    "take over": 4,
    "time": 8,
    "resume": 3,
    "skip": 3,
    "sweep": 3,
    "status": 3,
    "stop": 1,
    "retry": 2,
    "activate": 3,
    "look": 4,
}
"""How often each command comes, beside the others."""


class WentApartError(AssertionError):
    """Two implementations differ, or one broke an invariant."""


class Walk:
    """Takes the same steps on all sides."""

    def __init__(self, worlds: Sequence[World], seed: int) -> None:
        self.sides = [Side(world) for world in worlds]
        self.seed = seed
        self.log: list[str] = []
        self.tally: dict[str, int] = {}
        self._chance = random.Random(seed)
        drawn_from = (RoutingCommands, WorkCommands, PeopleCommands)
        self._makers: dict[str, Maker] = {}
        for kind in drawn_from:
            self._makers |= kind(self._chance, self.sides[0]).makers()
        assert self._makers.keys() == WEIGHTS.keys()

    async def run(self, steps: int) -> None:
        """Take so many steps.

        Raises WentApartError with the last commands and the difference.
        """
        for kind in KINDS[:-1]:
            await self._step(f"subscribe {kind.name}", _subscribe(kind, boot=False))
        names, weights = list(WEIGHTS), list(WEIGHTS.values())
        for step in range(steps):
            if step == steps // 4:
                await self._step("subscribe late", _subscribe(KINDS[-1], boot=True))
            (name,) = self._chance.choices(names, weights)
            made = self._makers[name]()
            if made is not None:
                self.tally[name] = self.tally.get(name, 0) + 1
                await self._step(f"{name} {made[0]}", made[1])
        for side in self.sides:
            await side.world.check(LONGEST_TTL * 1000)

    async def _step(self, text: str, command: Command) -> None:
        answers = []
        for side in self.sides:
            mark = await side.world.mark_time()
            answers.append(await _answer(command, side))
            await side.world.order_by_key(mark)
        self.log.append(f"{text} -> {answers[0]}")
        if any(answer != answers[0] for answer in answers):
            raise self._went_apart("answers differ", answers)
        images = [await side.world.image() for side in self.sides]
        for image in images:
            if broken := broken_invariants(image, longest_ttl=LONGEST_TTL * 1000):
                raise self._went_apart("an invariant is broken", broken)
        seen = [observe(image, UNIT) for image in images]
        for other in seen[1:]:
            if difference := _difference(seen[0], other):
                raise self._went_apart("rows differ", difference)

    def _went_apart(self, what: str, values: Sequence[object]) -> WentApartError:
        steps = "\n  ".join(self.log[-25:])
        shown = "\n  ".join(map(str, values))
        return WentApartError(f"seed {self.seed}, step {len(self.log)}: {what}\n  {shown}\nlast steps:\n  {steps}")


async def _answer(command: Command, side: Side) -> object:
    """Return what a command answers, or which error it raises."""
    try:
        return await command(side)
    except Undo:
        return "undone"
    except HeadraceError as error:
        return error_name(error)


def _subscribe(kind: Kind, *, boot: bool) -> Command:
    async def command(side: Side) -> object:
        target = await side.world.reader.head() if boot else Position(0)
        stored = await side.world.subscribe(kind.name, kind.partition_by, wanted=kind.wanted, boot_target=target)
        side.subscriptions[kind.name] = stored
        return stored.status, stored.epoch

    return command


def _difference(one: Observed, other: Observed) -> list[str]:
    """Return the rows in which two observations differ."""
    found = []
    for table in fields(Observed):
        left, right = getattr(one, table.name), getattr(other, table.name)
        if left == right:
            continue
        if isinstance(left, dict):
            keys = sorted((key for key in {*left, *right} if left.get(key) != right.get(key)), key=repr)
            found += [f"{table.name}[{key!r}]: {left.get(key)} and {right.get(key)}" for key in keys]
        else:
            found.append(f"{table.name}: {left} and {right}")
    return found
