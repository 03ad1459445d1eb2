"""Set-ups that nobody finishes: whoever is at one dies, or another version is in charge. A living worker goes on."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from headrace import App, Event, on, projector
from headrace.domain.engine_events import MainStopped, StatusChanged, StoodBack, TookCharge
from headrace.domain.subscription import ErrorClass
from support.apps.rolling import app_of, nothing, old, subscriber
from support.databases import Database
from support.fleet import fleet
from support.scenes import append, execute, opened, options, rows, serving, until_value, value
from support.waiting import until

QUICK = options(lease_seconds=2, poll_max=0.1, beat_seconds=0.3)
ONCE = options(lease_seconds=2, poll_max=0.1, beat_seconds=0.3, retry_min=3600, retry_max=3600)
"""A failed set-up does not come due by itself."""

STATUS = "select status from headrace.subscriptions where name = 'p'"
SETUPS = "select count(*) from headrace.leases where purpose = 'setup'"


class Failing:
    """A hook that fails at its first call."""

    def __init__(self, then_hangs: bool = False) -> None:
        """Say whether the second call never ends."""
        self.calls = 0
        self._then_hangs = then_hangs

    async def __call__(self) -> None:
        """Fail, or not."""
        self.calls += 1
        if self.calls == 1:
            raise ValueError("not yet")
        if self._then_hangs:
            await asyncio.Event().wait()


async def until_renewed(database: Database) -> None:
    """Wait until the set-up lease was renewed for long enough that every worker has looked in between."""
    await until_value(database, SETUPS, 1)
    first = await value(database, "select extract(epoch from expires_at)::float from headrace.leases")
    later = f"select extract(epoch from expires_at)::float > {first + 1.5} from headrace.leases where purpose = 'setup'"
    await until_value(database, later, True)


@pytest.mark.timeout(90)
async def test_a_set_up_whose_version_died_is_done_by_the_one_that_takes_charge(database: Database) -> None:
    """The only worker of the new version is killed in its hook: the living worker of the old one, which stands back
    and has long started, takes charge and sets the subscription up.
    """
    async with opened(old, database, QUICK) as scene:
        await scene.engine.run()
    with fleet(database.dsn) as workers:
        victim = workers.start("rolling:new_hanging", variables={"lease_seconds": "2"})
        await until_value(database, SETUPS, 1)
        async with serving(old, database, QUICK) as living:
            await living.saw(StoodBack, subscription="p")
            victim.kill()
            await living.saw(TookCharge, subscription="p")
            await until_value(database, STATUS, "active", timeout=15)


@pytest.mark.timeout(60)
async def test_who_stands_back_does_not_begin_a_retry(database: Database) -> None:
    """The set-up of the new version has failed: a worker of the old one that starts leaves it in error, with its
    reason, to the version in charge, because it would not go on with it.
    """
    hook = Failing()
    new = app_of(hook, "A", "B")
    async with opened(old, database, ONCE) as scene:
        await scene.engine.run()
    async with serving(new, database, ONCE) as in_charge:
        await in_charge.saw(MainStopped, subscription="p")
        async with serving(old, database, ONCE) as back:
            await back.saw(StoodBack, subscription="p")
            await until_value(database, "select count(*) from headrace.workers", 2)
            assert (await back.engine.setup()).errors
            assert await rows(database, f"{STATUS} and error_class = 'setup'") == [("error",)]
    async with opened(new, database, ONCE) as again:
        assert not (await again.engine.setup()).errors
    assert (await value(database, STATUS), hook.calls) == ("active", 2)


DIED = """
    with s as (
        update headrace.subscriptions set status = 'new', prev_status = null, error_class = null, reason = null,
               retry_at = null, epoch = epoch + 1
         where name = 'p' returning run)
    insert into headrace.leases (id, run, purpose, owner, worker, parts, events, expires_at)
    select 1, s.run, 'setup', gen_random_uuid(), 'victim', 0, 0, clock_timestamp() + interval '4 s' from s
"""
"""What a worker leaves that has begun to try a failed set-up again, and dies in the hook. In one step: between the two
of a real one the other worker may be the quicker.
"""


@pytest.mark.timeout(60)
async def test_a_retry_whose_worker_died_is_done_by_the_living_one(database: Database) -> None:
    """A worker has begun to try a failed set-up again, ahead of its time, and died in the hook: the one that lives
    leaves it to that one while its lease runs, and then sets the subscription up.
    """
    hook = Failing()
    async with serving(app_of(hook, "A"), database, ONCE) as living:
        await living.saw(MainStopped, subscription="p")
        await until_value(database, SETUPS, 0)
        await execute(database, DIED)
        nearly = "select count(*) from headrace.leases where expires_at < clock_timestamp() + interval '1 s'"
        await until_value(database, nearly, 1)
        assert (await value(database, STATUS), hook.calls) == ("new", 1)
        await until_value(database, STATUS, "active", timeout=15)
        assert living.engine.health().alive
    assert hook.calls == 2


@pytest.mark.timeout(60)
async def test_a_slow_hook_keeps_no_other_subscription_waiting(database: Database) -> None:
    """While a set-up that is tried again hangs, the worker takes charge of another subscription that stands back; and
    it drains at once.
    """
    retried = subscriber("slow", Failing(then_hangs=True), "A")
    both = App(retried, subscriber("p", nothing, "A"), name="shop")
    async with serving(both, database, options(lease_seconds=2, beat_seconds=0.3, retry_min=0.1)) as scene:
        await until_value(database, SETUPS, 1)
        async with serving(app_of(nothing, "A", "B"), database, QUICK):
            await scene.saw(StoodBack, subscription="p")
        await scene.saw(TookCharge, 20, subscription="p")
        assert await value(database, SETUPS) == 1
    assert await value(database, SETUPS) == 0


class NoKey:
    """A partitioner that fails."""

    def key(self, event: Event[Any]) -> str:
        """Fail."""
        raise ValueError("no key")


def keyless(*types: str) -> App:
    """Return a version of an app whose subscriber stops at its first event."""

    @projector("p", partition_by=NoKey())
    class Subscriber:
        @on(*types)
        async def see(self, event: Event[Any]) -> None:
            return

    return App(Subscriber(), name="shop")


@pytest.mark.timeout(60)
async def test_who_stands_back_does_not_try_a_missing_key_again(database: Database) -> None:
    """The version in charge has stopped at an event without a key and its retry is due: a worker of the older version
    begins it neither when it starts nor later, but only when it has taken charge.
    """
    due = options(lease_seconds=2, poll_max=0.1, beat_seconds=0.3, retry_min=0.01, retry_max=0.01)
    async with opened(keyless("A"), database, due) as scene:
        await scene.engine.setup()
    await append(database, ("s", "A", {}))
    async with AsyncExitStack() as ended, AsyncExitStack() as running:
        in_charge = await ended.enter_async_context(opened(keyless("A", "B"), database, due))
        await in_charge.engine.setup()
        await in_charge.engine.run()
        await in_charge.saw(MainStopped, subscription="p", error_class=ErrorClass.KEY)
        back = await running.enter_async_context(serving(keyless("A"), database, due))
        await back.saw(StoodBack, subscription="p")
        await until(lambda: back.engine.health().started)
        assert await value(database, STATUS) == "error"
        await ended.aclose()
        await back.saw(StatusChanged, status="retrying")
        told = [type(event) for event in back.observer.events if isinstance(event, TookCharge | StatusChanged)]
        assert told[0] is TookCharge
