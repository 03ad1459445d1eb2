"""The commands of a random walk that people give, and time itself; one of them only looks."""

from headrace.domain.ids import Address, PartitionKey, Position
from headrace.domain.subscription import ErrorClass, Status
from support.walk_sides import UNIT, Commands, Made, Maker, Side


class PeopleCommands(Commands):
    """Keys are held, failures resumed, subscriptions stopped and started, and time goes by."""

    def makers(self) -> dict[str, Maker]:
        """Return what draws each command, by its name."""
        return {
            "hold": self._hold,
            "unhold": self._unhold,
            "time": self._time,
            "resume": self._resume,
            "skip": self._skip,
            "status": self._status,
            "stop": self._stop,
            "retry": self._retry,
            "activate": self._activate,
            "look": self._look,
        }

    def _hold(self) -> Made | None:
        kind, key = self._kind(), self._chance.choice(["a", "b", "1", "new"])
        if kind is None:
            return None
        key = "" if kind.partition_by is None else key
        return f"{kind.name}#{key}", lambda side: side.world.set_hold(side.subscriptions[kind.name], key, "paused")

    def _unhold(self) -> Made | None:
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

    def _time(self) -> Made:
        units = self._chance.choice([1, 1, 2, 4])
        return f"{units}", lambda side: side.world.advance(units * UNIT)

    def _resume(self) -> Made:
        names = self._chance.choice([None, ["orders"], ["courses", "log"], ["nobody"]])
        key = self._chance.choice([None, None, "a", "1"])
        return f"{names} {key}", lambda side: side.world.failures.resume(names, key, "ada", "why not")

    def _skip(self) -> Made:
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

    def _status(self) -> Made | None:
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

    def _stop(self) -> Made | None:
        kind, error_class = self._kind(), self._chance.choice([ErrorClass.KEY, ErrorClass.SYSTEMIC])
        if kind is None:
            return None
        return (
            f"{kind.name} {error_class}",
            lambda side: side.world.catalog.stop_main(
                side.subscriptions[kind.name].run, error_class, "no reason", 1.3 * UNIT
            ),
        )

    def _retry(self) -> Made | None:
        kind, error_class = self._kind(), self._chance.choice([ErrorClass.KEY, ErrorClass.SYSTEMIC])
        force = self._chance.random() < 0.5
        if kind is None:
            return None
        return (
            f"{kind.name} {error_class} {force}",
            lambda side: side.world.catalog.begin_retry(side.subscriptions[kind.name].run, error_class, force),
        )

    def _activate(self) -> Made | None:
        kind = self._kind()
        if kind is None:
            return None
        return kind.name, lambda side: side.world.catalog.activate(side.subscriptions[kind.name].run)

    def _look(self) -> Made | None:
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
