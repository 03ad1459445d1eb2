"""The commands of a random walk that write the log and route it."""

from headrace.domain.ids import Position
from headrace.partitioning.keys import Stream, key_of
from headrace.testing.events import new
from support.walk_sides import IDLE, KINDS, PARTITIONED, STREAMS, TAGS, Commands, Made, Maker, Side


class RoutingCommands(Commands):
    """Events come and go, and are routed, in one step or in two."""

    def makers(self) -> dict[str, Maker]:
        """Return what draws each command, by its name."""
        return {
            "append": self._append,
            "hole": self._hole,
            "delete": self._delete,
            "route": self._route,
            "read": self._read,
            "store": self._store,
            "pass": self._pass_over,
            "sweep": self._sweep,
        }

    def _append(self) -> Made:
        stream, tags = self._chance.choice(STREAMS), self._chance.choice(TAGS)
        types = self._chance.choices("ABC", k=self._chance.randint(1, 4))

        async def command(side: Side) -> object:
            appended = await side.world.appender.append([(stream, new(type, tags=tags)) for type in types])
            return appended.first, appended.last, appended.versions

        return f"{stream!r} {types} {tags}", command

    def _hole(self) -> Made:
        return "", lambda side: side.world.leave_hole()

    def _delete(self) -> Made:
        share = self._chance.random()

        async def command(side: Side) -> object:
            events = list((await side.world.image()).log.after(Position(0)))
            if not events:
                return None
            position = events[int(share * len(events))].position
            await side.world.delete_event(position)
            return position

        return "", command

    def _route(self) -> Made | None:
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

    def _read(self) -> Made | None:
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

    def _store(self) -> Made | None:
        names = [name for name, read in self._first.reads.items() if read.last > 0]
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

    def _pass_over(self) -> Made | None:
        kind = self._kind(PARTITIONED)
        if kind is None:
            return None
        ahead = self._chance.choice([1, 1, 1, 2, 3])

        async def command(side: Side) -> object:
            run = side.subscriptions[kind.name].run
            cursor = (await side.world.image()).cursors[run]
            return await side.world.routing.pass_over(run, Position(cursor.position + ahead))

        return f"{kind.name} {ahead} ahead", command

    def _sweep(self) -> Made | None:
        kind = self._kind(PARTITIONED)
        if kind is None:
            return None
        return kind.name, lambda side: side.world.routing.sweep(side.subscriptions[kind.name].run, IDLE, 10**6)
