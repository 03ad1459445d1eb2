"""How far lanes have come when a scenario of their port begins: keys due, claimed, loaded; and what is seen then."""

from headrace.domain.subscription import Subscription
from headrace.ports.work import ClaimGroup, Loaded
from support.observed import Observed, observe
from support.worlds import World


async def with_keys(w: World, *keys: str) -> Subscription:
    """Return a subscription with one event for each key, made due one after the other."""
    orders = await w.subscribe()
    for key in keys:
        await w.append(key, "X")
        await w.route(orders)
    return orders


async def keys_of(w: World, subscription: Subscription, worker: int = 1, **limits: int) -> set[str]:
    """Claim and return the keys."""
    group = await w.claim(subscription, worker, **limits)
    by_part = {row.id: key for key, row in (await w.parts(subscription)).items()}
    return set() if group is None else {by_part[part.part] for part in group.parts}


async def worked_on(w: World, limit: int = 1000, **streams: int) -> tuple[Subscription, ClaimGroup, Loaded]:
    """Return a subscription with so many events for each key, all of it claimed and loaded."""
    orders = await w.subscribe()
    for stream, count in streams.items():
        await w.append(stream, *["X"] * count)
    await w.route(orders)
    group = await w.claimed(orders)
    return orders, group, await w.load(group, limit=limit)


async def seen(w: World) -> Observed:
    """Return what is stored now."""
    return observe(await w.image())


def sqlstate_of(error: BaseException) -> object:
    """Return the SQLSTATE of an error or of what caused it."""
    return getattr(error, "sqlstate", None) or getattr(error.__cause__, "sqlstate", None)
