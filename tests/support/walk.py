"""A random walk through the protocol, taken by several implementations in step.

Each step is one command with arguments drawn from a seed: what it answers, what it refuses, what can
be seen afterwards and which invariants hold must be the same everywhere. Partition ids and the order
of rows that one statement writes are nobody's promise, so commands name keys, and after each step the
rows that became due together are put in order by key.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from headrace.domain.errors import HeadraceError, LeaseLost, TransactionAborted, UsageError
from headrace.domain.event import EVERYTHING, EventFilter
from headrace.domain.ids import Address, PartitionKey, Position
from headrace.domain.subscription import ErrorClass, Status, Subscription
from headrace.partitioning.keys import Partitioner, Stream, Tag, key_of
from headrace.ports.routing import Unrouted
from headrace.ports.work import (
    ClaimGroup,
    FailureState,
    Flush,
    FlushMode,
    KeyFailure,
    Loaded,
    LoadedPartition,
    WorkTransaction,
)
from headrace.testing.events import new
from headrace.testing.invariants import LONGEST_TTL, broken_invariants
from support.observed import Observed, observe
from support.worlds import World, by_key, failure_of, flush_of, log_flush_of

UNIT = 10_000.0
"""Seconds of one step of time: much longer than any walk takes, so that real time does not matter."""
DELAYS = [1.3 * UNIT, 2.3 * UNIT, 5.3 * UNIT]
TTL = 3.3 * UNIT
IDLE = 2.6 * UNIT

STREAMS = ["a", "b", "c", "d", "é", ""]
TAGS = [[], ["k:1"], ["k:2", "k:1"], ["k:3", "other:1"], ["other:1"]]
WORKERS = [1, 2]
REMEMBERED = 8
"""Groups that are tried again, also when their lease is gone long since."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A subscription of the walk."""

    name: str
    partition_by: Partitioner | None
    wanted: EventFilter = EVERYTHING


KINDS = [
    Kind("orders", Stream()),
    Kind("courses", Tag("k"), EventFilter(types=("A", "C"))),
    Kind("log", None, EventFilter(types=("A", "B"))),
    Kind("late", Stream(), EventFilter(types=("B",))),
]
PARTITIONED = [kind for kind in KINDS if kind.partition_by is not None]


@dataclass(slots=True)
class Held:
    """A group that was claimed, and what was loaded of it last."""

    kind: Kind
    worker: int
    group: ClaimGroup
    loaded: Loaded = field(default_factory=Loaded)

    def loaded_keys(self) -> list[str]:
        """Return the loaded keys."""
        return sorted(by_key(self.loaded))


@dataclass(slots=True)
class Side:
    """One implementation on its walk."""

    world: World
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    groups: dict[int, Held] = field(default_factory=dict)
    reads: dict[str, Unrouted] = field(default_factory=dict)

    async def keys_of(self, held: Held) -> list[tuple[str, int, int, int]]:
        """Return a group by keys, with backlog, attempts and take-overs."""
        partitions = (await self.world.image()).partitions
        return sorted(
            (str(partitions[p.part].key), p.backlog, p.attempts, p.takeovers)
            for p in held.group.parts
            if p.part in partitions
        )


Command = Callable[[Side], Awaitable[Any]]


class WentApartError(AssertionError):
    """Two implementations differ, or one broke an invariant."""


class Undo(Exception):
    """Raised by the walk inside a transaction."""


class Walk:
    """Takes the same steps on all sides."""

    def __init__(self, worlds: Sequence[World], seed: int) -> None:
        self.sides = [Side(world) for world in worlds]
        self.seed = seed
        self.log: list[str] = []
        self.tally: dict[str, int] = {}
        self._chance = random.Random(seed)
        self._commands: dict[str, tuple[int, Callable[[], tuple[str, Command] | None]]] = {
            "append": (12, self._append),
            "hole": (1, self._hole),
            "delete": (1, self._delete),
            "route": (12, self._route),
            "read": (3, self._read),
            "store": (4, self._store),
            "pass": (1, self._pass_over),
            "claim": (14, self._claim),
            "claim log": (6, self._claim_log),
            "load": (14, self._load),
            "flush": (16, self._flush),
            "transaction": (6, self._transaction),
            "fail": (8, self._fail),
            "slow": (3, self._slow),
            "leave": (4, self._leave),
            "hold": (3, self._hold),
            "unhold": (3, self._unhold),
            "release": (4, self._release),
            "renew": (2, self._renew),
            "take over": (4, self._take_over),
            "time": (8, self._time),
            "resume": (3, self._resume),
            "skip": (3, self._skip),
            "sweep": (3, self._sweep),
            "status": (3, self._status),
            "stop": (1, self._stop),
            "retry": (2, self._retry),
            "activate": (3, self._activate),
            "look": (4, self._look),
        }

    async def run(self, steps: int) -> None:
        """Take so many steps.

        Raises WentApartError with the last commands and the difference.
        """
        for kind in KINDS[:-1]:
            await self._step(f"subscribe {kind.name}", self._subscribe(kind, boot=False))
        names = list(self._commands)
        weights = [self._commands[name][0] for name in names]
        for step in range(steps):
            if step == steps // 4:
                await self._step("subscribe late", self._subscribe(KINDS[-1], boot=True))
            (name,) = self._chance.choices(names, weights)
            made = self._commands[name][1]()
            if made is not None:
                self.tally[name] = self.tally.get(name, 0) + 1
                await self._step(f"{name} {made[0]}", made[1])

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

    # What exists is asked of the first side; all others must agree with it anyway.

    def _kind(self, kinds: Sequence[Kind] = KINDS) -> Kind | None:
        there = [kind for kind in kinds if kind.name in self.sides[0].subscriptions]
        return self._chance.choice(there) if there else None

    def _held(self) -> tuple[int, Held] | None:
        groups = self.sides[0].groups
        if not groups:
            return None
        # Mostly one of the last, sometimes one that may have lost its lease.
        leases = list(groups)[-REMEMBERED:]
        lease = self._chance.choice(leases[-3:] if self._chance.random() < 0.8 else leases)
        return lease, groups[lease]

    def _subscribe(self, kind: Kind, *, boot: bool) -> Command:
        async def command(side: Side) -> object:
            target = await side.world.reader.head() if boot else Position(0)
            stored = await side.world.subscribe(kind.name, kind.partition_by, wanted=kind.wanted, boot_target=target)
            side.subscriptions[kind.name] = stored
            return stored.status, stored.epoch

        return command

    def _append(self) -> tuple[str, Command]:
        stream, tags = self._chance.choice(STREAMS), self._chance.choice(TAGS)
        types = self._chance.choices("ABC", k=self._chance.randint(1, 4))

        async def command(side: Side) -> object:
            appended = await side.world.appender.append([(stream, new(type, tags=tags)) for type in types])
            return appended.first, appended.last, appended.versions

        return f"{stream!r} {types} {tags}", command

    def _hole(self) -> tuple[str, Command]:
        return "", lambda side: side.world.leave_hole()

    def _delete(self) -> tuple[str, Command]:
        share = self._chance.random()

        async def command(side: Side) -> object:
            events = list((await side.world.image()).log.after(Position(0)))
            if not events:
                return None
            position = events[int(share * len(events))].position
            await side.world.delete_event(position)
            return position

        return "", command

    def _route(self) -> tuple[str, Command] | None:
        kind = self._kind(PARTITIONED)
        if kind is None:
            return None
        limit, short = self._chance.choice([1, 2, 5, 100]), self._chance.choice([0, 0, 0, 2])

        async def command(side: Side) -> object:
            upto = max(await side.world.reader.head() - short, 0)
            partition_by = kind.partition_by or Stream()
            subscription = side.subscriptions[kind.name]
            return await side.world.route(subscription, partition_by, wanted=kind.wanted, upto=upto, limit=limit)

        return f"{kind.name} limit {limit}, {short} below the head", command

    def _read(self) -> tuple[str, Command] | None:
        kind = self._kind(PARTITIONED)
        if kind is None:
            return None
        limit = self._chance.choice([1, 3, 100])

        async def command(side: Side) -> object:
            run, head = side.subscriptions[kind.name].run, await side.world.reader.head()
            read = await side.world.routing.read_unrouted(run, kind.wanted, head, limit, 10**6)
            side.reads[kind.name] = read
            return read.outcome, read.position, read.last, [event.position for event in read.events], read.complete

        return f"{kind.name} limit {limit}", command

    def _store(self) -> tuple[str, Command] | None:
        names = [name for name, read in self.sides[0].reads.items() if read.last > 0]
        if not names:
            return None
        name = self._chance.choice(names)
        partition_by = next(kind.partition_by for kind in KINDS if kind.name == name) or Stream()

        async def command(side: Side) -> object:
            read = side.reads[name]
            pairs = [(event.position, key_of(partition_by, event)) for event in read.events]
            routes = [(position, key) for position, key in pairs if key is not None]
            run = side.subscriptions[name].run
            return await side.world.routing.store_routes(run, read.position, read.last, routes)

        return name, command

    def _pass_over(self) -> tuple[str, Command] | None:
        kind = self._kind(PARTITIONED)
        if kind is None:
            return None
        ahead = self._chance.choice([1, 1, 1, 2, 3])

        async def command(side: Side) -> object:
            run = side.subscriptions[kind.name].run
            cursor = (await side.world.image()).cursors[run]
            return await side.world.routing.pass_over(run, Position(cursor.position + ahead))

        return f"{kind.name} {ahead} ahead", command

    def _claim(self) -> tuple[str, Command] | None:
        kind = self._kind(PARTITIONED)
        if kind is None:
            return None
        worker = self._chance.choice(WORKERS)
        limits = {
            "lanes": self._chance.choice([1, 1, 2, 4]),
            "parts": self._chance.choice([1, 2, 1000]),
            "events": self._chance.choice([1, 4, 10**6]),
            "floor": self._chance.choice([0, 0, 3]),
        }

        async def command(side: Side) -> object:
            group = await side.world.claim(side.subscriptions[kind.name], worker, ttl=TTL, **limits)
            return await self._remember(side, kind, worker, group)

        return f"{kind.name} by {worker} {limits}", command

    def _claim_log(self) -> tuple[str, Command] | None:
        kind, worker = KINDS[2], self._chance.choice(WORKERS)
        short = self._chance.choice([0, 0, 1])

        async def command(side: Side) -> object:
            upto = Position(max(await side.world.reader.head() - short, 0))
            request = side.world.request(side.subscriptions[kind.name], ttl=TTL)
            group = await side.world.work(worker).claim_log(request, upto)
            return await self._remember(side, kind, worker, group)

        return f"by {worker}, {short} below the head", command

    async def _remember(self, side: Side, kind: Kind, worker: int, group: ClaimGroup | None) -> object:
        if group is None:
            return None
        side.groups[group.lease] = Held(kind, worker, group)
        return await side.keys_of(side.groups[group.lease])

    def _load(self) -> tuple[str, Command] | None:
        found = self._held()
        if found is None:
            return None
        lease, limit = found[0], self._chance.choice([1, 2, 100])

        async def command(side: Side) -> object:
            held = side.groups[lease]
            work = side.world.work(held.worker)
            if held.kind.partition_by is None:
                head = await side.world.reader.head()
                held.loaded = await work.load_log(held.group, held.kind.wanted, head, limit, 10**6)
            else:
                held.loaded = await work.load(held.group, limit, 10**6, 10**9)
            return held.loaded.standing, len(held.loaded.held), sorted(map(_shown, held.loaded.partitions))

        return f"lease {lease} limit {limit}", command

    def _flush(self) -> tuple[str, Command] | None:
        found = self._held()
        if found is None:
            return None
        lease, held = found
        make, text = self._some_flush(held)

        async def command(side: Side) -> object:
            held = side.groups[lease]
            return await side.world.work(held.worker).flush(make(held))

        return f"lease {lease} {text}", command

    def _some_flush(self, held: Held) -> tuple[Callable[[Held], Flush], str]:
        """Return what makes a flush of a part of what is loaded, and its description."""
        mode = self._chance.choice(list(FlushMode))
        busy, slot = self._chance.choice([0.0, 0.5]), self._chance.choice([0, 3])
        keys = [key for key in held.loaded_keys() if self._chance.random() < 0.7]
        count = self._chance.choice([None, None, 1])

        def make(held: Held) -> Flush:
            if held.kind.partition_by is None:
                if not held.loaded.partitions:
                    return Flush(held.group.run, held.group.lease, mode, (), partitioned=True)
                (partition,) = held.loaded.partitions
                end = None if count is None or not partition.events else partition.events[0].position
                return log_flush_of(held.group, held.loaded, to=end, mode=mode)
            loaded = by_key(held.loaded)
            return flush_of(held.group, [loaded[key] for key in keys], mode, count=count, slot=slot, busy_seconds=busy)

        return make, f"{mode} of {keys} count {count}"

    def _some_failure(self, held: Held) -> Callable[[Held], KeyFailure | None]:
        state = self._chance.choice(list(FailureState))
        delay = None if state is FailureState.WAITING else self._chance.choice(DELAYS)
        keys = held.loaded_keys()
        key = self._chance.choice(keys) if keys else ""

        def make(held: Held) -> KeyFailure | None:
            partition = by_key(held.loaded).get(key)
            if partition is None or not partition.events:
                return None
            return failure_of(held.group, partition, state=state, delay=delay, error=f"no {key}", slot=1)

        return make

    def _transaction(self) -> tuple[str, Command] | None:
        found = self._held()
        if found is None:
            return None
        lease, held = found
        parts: list[tuple[str, Callable[[WorkTransaction, Held], Awaitable[object]], bool]] = []
        for _ in range(self._chance.randint(1, 3)):
            undo = self._chance.random() < 0.25
            if self._chance.random() < 0.6:
                make, text = self._some_flush(held)
                parts.append((text, lambda tx, held, make=make: tx.flush(make(held)), undo))  # type: ignore[misc]
            else:
                fails = self._some_failure(held)
                parts.append(("fail", lambda tx, held, fails=fails: _fail_if(tx, fails(held)), undo))  # type: ignore[misc]
        raises = self._chance.random() < 0.2

        async def command(side: Side) -> object:
            held = side.groups[lease]
            answers: list[object] = []
            async with side.world.work(held.worker).begin(held.group, 100 * UNIT) as transaction:
                for _, act, undo in parts:
                    answers.append(await _inside_savepoint(transaction, held, act, undo=undo))
                if raises:
                    raise Undo
            return answers

        return f"lease {lease} {[(text, undo) for text, _, undo in parts]} raises {raises}", command

    def _fail(self) -> tuple[str, Command] | None:
        found = self._held()
        if found is None or not found[1].loaded_keys():
            return None
        lease, make = found[0], self._some_failure(found[1])

        async def command(side: Side) -> object:
            held = side.groups[lease]
            failure = make(held)
            return None if failure is None else await side.world.work(held.worker).fail(failure)

        return f"lease {lease}", command

    def _slow(self) -> tuple[str, Command] | None:
        found = self._held()
        if found is None or not found[1].loaded_keys():
            return None
        lease, key, delay = found[0], self._chance.choice(found[1].loaded_keys()), self._chance.choice(DELAYS)

        async def command(side: Side) -> None:
            held = side.groups[lease]
            await side.world.work(held.worker).slow(held.group.lease, by_key(held.loaded)[key].part, delay)

        return f"lease {lease} {key!r} {delay}", command

    def _leave(self) -> tuple[str, Command] | None:
        found = self._held()
        if found is None:
            return None
        lease = found[0]

        async def command(side: Side) -> object:
            held = side.groups[lease]
            return await side.world.work(held.worker).hold(held.group.lease, held.loaded.held)

        return f"lease {lease}", command

    def _hold(self) -> tuple[str, Command] | None:
        kind, key = self._kind(), self._chance.choice(["a", "b", "1", "new"])
        if kind is None:
            return None
        key = "" if kind.partition_by is None else key
        return f"{kind.name}#{key}", lambda side: side.world.set_hold(side.subscriptions[kind.name], key, "paused")

    def _unhold(self) -> tuple[str, Command] | None:
        kind = self._kind()
        if kind is None:
            return None

        async def command(side: Side) -> object:
            subscription = side.subscriptions[kind.name]
            held = sorted(key for key, row in (await side.world.parts(subscription)).items() if row.hold is not None)
            if held:
                await side.world.set_hold(subscription, held[0], None)
            return held

        return kind.name, command

    def _release(self) -> tuple[str, Command] | None:
        found = self._held()
        if found is None:
            return None
        lease = found[0]

        async def command(side: Side) -> None:
            held = side.groups[lease]
            await side.world.work(held.worker).release([held.group.lease])

        return f"lease {lease}", command

    def _renew(self) -> tuple[str, Command] | None:
        worker = self._chance.choice(WORKERS)

        async def command(side: Side) -> object:
            return await side.world.work(worker).renew([held.group.lease for held in side.groups.values()], TTL)

        return f"by {worker}", command

    def _take_over(self) -> tuple[str, Command]:
        async def command(side: Side) -> object:
            return sorted((t.lease, t.worker, t.parts) for t in await side.world.work(2).take_over())

        return "", command

    def _time(self) -> tuple[str, Command]:
        units = self._chance.choice([1, 1, 2, 4])
        return f"{units}", lambda side: side.world.advance(units * UNIT)

    def _resume(self) -> tuple[str, Command]:
        names = self._chance.choice([None, ["orders"], ["courses", "log"], ["nobody"]])
        key = self._chance.choice([None, None, "a", "1"])
        return f"{names} {key}", lambda side: side.world.failures.resume(names, key, "ada", "why not")

    def _skip(self) -> tuple[str, Command]:
        share, right = self._chance.random(), self._chance.choice([None, True, True, False])

        async def command(side: Side) -> object:
            listed = [failure async for failure in side.world.failures.list()]
            if not listed:
                return None
            failure = listed[int(share * len(listed))]
            position = None if right is None else Position(failure.position + (not right))
            return await side.world.failures.skip(
                Address(failure.subscription, failure.key), position, "ada", "because"
            )

        return f"{right}", command

    def _sweep(self) -> tuple[str, Command] | None:
        kind = self._kind(PARTITIONED)
        if kind is None:
            return None
        return kind.name, lambda side: side.world.routing.sweep(side.subscriptions[kind.name].run, IDLE, 10**6)

    def _status(self) -> tuple[str, Command] | None:
        kind = self._kind()
        if kind is None:
            return None

        async def command(side: Side) -> object:
            (stored,) = await side.world.catalog.find([kind.name])
            if stored.status not in {Status.ACTIVE, Status.BOOTING, Status.PAUSED}:
                return stored.status
            back = stored.prev_status or Status.ACTIVE
            await side.world.set_status(kind.name, back if stored.status is Status.PAUSED else Status.PAUSED)
            return None

        return kind.name, command

    def _stop(self) -> tuple[str, Command] | None:
        kind, error_class = self._kind(), self._chance.choice([ErrorClass.KEY, ErrorClass.SYSTEMIC])
        if kind is None:
            return None
        return (
            f"{kind.name} {error_class}",
            lambda side: side.world.catalog.stop_main(
                side.subscriptions[kind.name].run, error_class, "no reason", 1.3 * UNIT
            ),
        )

    def _retry(self) -> tuple[str, Command] | None:
        kind, error_class = self._kind(), self._chance.choice([ErrorClass.KEY, ErrorClass.SYSTEMIC])
        force = self._chance.random() < 0.5
        if kind is None:
            return None
        return (
            f"{kind.name} {error_class} {force}",
            lambda side: side.world.catalog.begin_retry(side.subscriptions[kind.name].run, error_class, force),
        )

    def _activate(self) -> tuple[str, Command] | None:
        kind = self._kind()
        if kind is None:
            return None
        return kind.name, lambda side: side.world.catalog.activate(side.subscriptions[kind.name].run)

    def _look(self) -> tuple[str, Command] | None:
        kind, key = self._kind(), self._chance.choice([None, PartitionKey("a"), PartitionKey("")])
        line = Position(self._chance.choice([3, 1000]))
        if kind is None:
            return None

        async def command(side: Side) -> object:
            run = side.subscriptions[kind.name].run
            (due,) = await side.world.work().due([run])
            later = None if due.next_due_in is None else round(due.next_due_in / UNIT)
            caught = await side.world.catalog.caught_up(run, line, key)
            listed = [
                (failure.subscription, failure.position, failure.key, failure.event_type, failure.waiting)
                async for failure in side.world.failures.list()
            ]
            stored = await side.world.horizon.stored_position()
            return due.status, due.epoch, due.due, later, caught, sorted(listed), stored

        return f"{kind.name} {key} {line}", command


async def _answer(command: Command, side: Side) -> object:
    """Return what a command answers, or which error it raises."""
    try:
        return await command(side)
    except Undo:
        return "undone"
    except HeadraceError as error:
        return _named(error)


def _named(error: HeadraceError) -> str:
    """Return the class of an error, or the SQLSTATE for one that says that the tables are at odds."""
    if isinstance(error, LeaseLost | UsageError | TransactionAborted):
        return type(error).__name__
    return str(getattr(error, "sqlstate", None) or getattr(error.__cause__, "sqlstate", None) or type(error).__name__)


async def _inside_savepoint(
    transaction: WorkTransaction,
    held: Held,
    act: Callable[[WorkTransaction, Held], Awaitable[object]],
    *,
    undo: bool,
) -> object:
    try:
        async with transaction.savepoint():
            answer = await act(transaction, held)
            if undo:
                raise Undo
    except Undo:
        return "undone"
    except HeadraceError as error:
        return _named(error)
    return answer


async def _fail_if(transaction: WorkTransaction, failure: KeyFailure | None) -> object:
    return None if failure is None else await transaction.fail(failure)


def _shown(loaded: LoadedPartition) -> tuple[object, ...]:
    """Return a loaded partition without its id."""
    events = [event.position for event in loaded.events]
    vanished = list(loaded.vanished)
    return str(loaded.key), loaded.position, loaded.attempts, loaded.takeovers, events, vanished, loaded.to


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
