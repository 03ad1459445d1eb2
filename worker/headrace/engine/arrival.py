"""Has a subscription arrived? The questions of ``wait``, ``--until-caught-up`` and a run's result."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.domain.errors import NotFinished, NotFound
from headrace.domain.horizon import Horizon
from headrace.domain.ids import PartitionKey, Position
from headrace.domain.subscription import ErrorClass, Status
from headrace.engine.horizon import HorizonService
from headrace.engine.tracked import STANDS_BACK, Ports, Tracked

POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Arrival:
    """How the subscriptions of an engine stand together.

    ``pending``: work that moves by itself is left (due, leased or backing off), or events are not
    routed yet. ``locked``: all that is left is leased. ``blocked``: what waits for a person.
    ``backing_off``: all that is pending are keys that wait for their next try.
    """

    pending: bool
    locked: bool
    blocked: tuple[str, ...]
    backing_off: bool = False


async def look(ports: Ports, tracked: Sequence[Tracked], horizon: Horizon, target: Position | None = None) -> Arrival:
    """Look at all subscriptions once, two statements each: is all handled that is in the log up to ``target``?

    None: all that is committed now, and what lies above a held line is committed, too.
    """
    upto = target
    if upto is None:
        upto = await ports.reader.head() if tracked and horizon.is_held else horizon.line
    pending, backing_off, free, leased, blocked = False, False, False, False, []
    for one in tracked:
        (due,) = await ports.work.due([one.run])
        if one.take_status(Status(due.status), due.epoch):
            (one.stored,) = await ports.catalog.find([one.name])
        if not one.in_charge:
            blocked.append(f"{one.name} {STANDS_BACK}")
            continue
        if not one.stored.status.is_running:
            blocked.append(f"{one.name} is {one.stored.status}")
            continue
        caught = await ports.catalog.caught_up(one.run, upto)
        if target is not None and not caught.behind and (caught.low is None or caught.low > target):
            # All that is in hand came later, and beside busy appenders something always is.
            caught = replace(caught, due=False, leased=False, backing_off=False)
        # Booting ends by itself as soon as all is handled or parked: not to be left half way.
        pending = pending or (one.stored.status is Status.BOOTING and not caught.backing_off)
        # Stored beyond what this look knows: the next look knows it, too, or the router stops for a log that went back.
        pending = pending or caught.position > horizon.head
        # The one key of an unpartitioned subscription that is parked leaves the rest of the log where it is.
        moves = caught.behind and (one.partitioned or caught.parked is None)
        pending = pending or moves or caught.due or caught.leased
        backing_off = backing_off or caught.backing_off
        free = free or caught.due or (moves and not caught.leased)
        leased = leased or caught.leased
        if caught.parked is not None:
            blocked.append(f"{one.name}#{caught.parked_key or ''} is parked or held at position {caught.parked}")
    return Arrival(
        pending or backing_off,
        (pending or backing_off) and leased and not free,
        tuple(blocked),
        backing_off and not pending,
    )


async def wait_for(
    ports: Ports,
    horizon: HorizonService,
    name: str,
    position: Position | None,
    timeout: float | None,
    key: str | None = None,
) -> None:
    """Wait until everything up to ``position`` is handled; None: all that is committed now.

    What lies above a held horizon is committed too, so it is waited for.

    Raises:
        NotFinished: ``timeout`` seconds went by; the message names what stands in the way.
        NotFound: there is no such subscription.

    """
    found = await ports.catalog.find([name])
    if not found:
        raise NotFound(f"there is no subscription {name!r}; see headrace status")
    target = position if position is not None else await ports.reader.head()
    given_up_at = None if timeout is None else ports.clock.monotonic() + timeout
    partition = None if key is None else PartitionKey(key)
    while True:
        caught = await ports.catalog.caught_up(found[0].run, target, partition)
        arrived = not caught.behind and (caught.low is None or caught.low > target)
        # A position beyond the last event has not been reached before something is there.
        if arrived and await _is_there(ports, horizon, name, caught.position, target):
            return
        if given_up_at is not None and ports.clock.monotonic() >= given_up_at:
            where = f"handled up to {caught.handled}, routed up to {caught.position}"
            if caught.parked is not None:
                where += f"; key {str(caught.parked_key)!r} is parked or held at {caught.parked}"
            if arrived and caught.position >= target:
                where += "; its event table went back: see headrace status"
            raise NotFinished(f"{name} has not reached position {target} in {timeout:g} s: {where}")
        await ports.clock.sleep(POLL_SECONDS)


async def _is_there(ports: Ports, service: HorizonService, name: str, position: Position, target: Position) -> bool:
    """Tell whether the log reaches as far as what counts as handled, and that as far as the target."""
    horizon = await service.refresh()
    if position > horizon.head or (position < target and horizon.line < target):
        return False
    found = await ports.catalog.find([name])
    return not any(stored.error_class is ErrorClass.LOG for stored in found)
