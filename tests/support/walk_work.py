"""The commands of a random walk that lanes give: claims, loads, flushes, failures, leases."""

from collections.abc import Awaitable, Callable

from headrace.domain.errors import HeadraceError
from headrace.domain.ids import Position
from headrace.ports.work import ClaimGroup, FailureState, Flush, FlushMode, KeyFailure, LoadedPartition, WorkTransaction
from support.walk_sides import (
    DELAYS,
    KINDS,
    PARTITIONED,
    TTL,
    UNIT,
    WORKERS,
    Commands,
    Held,
    Kind,
    Made,
    Maker,
    Side,
    Undo,
    error_name,
)
from support.worlds import by_key, failure_of, flush_of, log_flush_of


class WorkCommands(Commands):
    """Keys are claimed and worked on, by owners that may have lost their lease."""

    def makers(self) -> dict[str, Maker]:
        """Return what draws each command, by its name."""
        return {
            "claim": self._claim,
            "claim log": self._claim_log,
            "load": self._load,
            "flush": self._flush,
            "transaction": self._transaction,
            "fail": self._fail,
            "slow": self._slow,
            "leave": self._leave,
            "release": self._release,
            "renew": self._renew,
            "take over": self._take_over,
        }

    def _claim(self) -> Made | None:
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

    def _claim_log(self) -> Made | None:
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

    def _load(self) -> Made | None:
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

    def _flush(self) -> Made | None:
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

    def _transaction(self) -> Made | None:
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

    def _fail(self) -> Made | None:
        found = self._held()
        if found is None or not found[1].loaded_keys():
            return None
        lease, make = found[0], self._some_failure(found[1])

        async def command(side: Side) -> object:
            held = side.groups[lease]
            failure = make(held)
            return None if failure is None else await side.world.work(held.worker).fail(failure)

        return f"lease {lease}", command

    def _slow(self) -> Made | None:
        found = self._held()
        if found is None or not found[1].loaded_keys():
            return None
        lease, key, delay = found[0], self._chance.choice(found[1].loaded_keys()), self._chance.choice(DELAYS)

        async def command(side: Side) -> None:
            held = side.groups[lease]
            await side.world.work(held.worker).slow(held.group.lease, by_key(held.loaded)[key].part, delay)

        return f"lease {lease} {key!r} {delay}", command

    def _leave(self) -> Made | None:
        found = self._held()
        if found is None:
            return None
        lease = found[0]

        async def command(side: Side) -> object:
            held = side.groups[lease]
            return await side.world.work(held.worker).hold(held.group.lease, held.loaded.held)

        return f"lease {lease}", command

    def _release(self) -> Made | None:
        found = self._held()
        if found is None:
            return None
        lease = found[0]

        async def command(side: Side) -> None:
            held = side.groups[lease]
            await side.world.work(held.worker).release([held.group.lease])

        return f"lease {lease}", command

    def _renew(self) -> Made | None:
        worker = self._chance.choice(WORKERS)

        async def command(side: Side) -> object:
            return await side.world.work(worker).renew([held.group.lease for held in side.groups.values()], TTL)

        return f"by {worker}", command

    def _take_over(self) -> Made:
        async def command(side: Side) -> object:
            return sorted((t.lease, t.worker, t.parts) for t in await side.world.work(2).take_over())

        return "", command


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
        return error_name(error)
    return answer


async def _fail_if(transaction: WorkTransaction, failure: KeyFailure | None) -> object:
    return None if failure is None else await transaction.fail(failure)


def _shown(loaded: LoadedPartition) -> tuple[object, ...]:
    """Return a loaded partition without its id."""
    events = [event.position for event in loaded.events]
    vanished = list(loaded.vanished)
    return str(loaded.key), loaded.position, loaded.attempts, loaded.takeovers, events, vanished, loaded.to
