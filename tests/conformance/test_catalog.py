"""The catalog's port: who subscribes, who owns it, where it stands, how far it is."""

from dataclasses import replace

import pytest

from headrace.domain.errors import BadDeclaration, LeaseLost, NotFound, OwnedElsewhere
from headrace.domain.event import EventFilter
from headrace.domain.ids import PartitionKey, Position, Run
from headrace.domain.subscription import ErrorClass, Kind, Status
from headrace.partitioning.keys import Tag
from headrace.ports.work import FailureState, FlushMode
from support.observed import observe
from support.worlds import World, WorldMaker, by_key, declared, failure_of, flush_of, log_flush_of

LINE = Position(1000)


async def test_declare_inserts_what_is_missing(world: WorldMaker) -> None:
    """A new subscription is stored as new, with a run of its own; the answer is in the order asked."""
    async with world() as w:
        b, a = await w.catalog.declare([declared("b", kind=Kind.REACTOR, group="mail"), declared("a", None)])
        assert (b.name, b.app, b.kind, b.group, b.partitioned) == ("b", "shop", Kind.REACTOR, "mail", True)
        assert (a.name, a.partitioned, a.status, a.epoch) == ("a", False, Status.NEW, 0)
        assert a.run != b.run
        assert await w.catalog.find() == [a, b]


async def test_declaring_again_changes_declared_facts_only(world: WorldMaker) -> None:
    """What the code says is brought up to date; run and status stay, the epoch tells that other events are wanted."""
    async with world() as w:
        orders = await w.subscribe("orders")
        (again,) = await w.catalog.declare(
            [late := declared("orders", Tag("t"), group="late", kind=Kind.REACTOR, wanted=EventFilter(types=("X",)))]
        )
        assert again == replace(orders, group="late", kind=Kind.REACTOR, declared=late.digest, epoch=orders.epoch + 1)
        assert await w.catalog.find(["orders"]) == [again]
        await w.append("s", "Y", "X")
        await w.set_status("orders", Status.PAUSED)
        assert not await w.routing.pass_over(orders.run, Position(1))
        assert await w.routing.pass_over(orders.run, Position(2))


async def test_subscription_belongs_to_one_app(world: WorldMaker) -> None:
    """A name of another app is refused with its owner's name, and nothing of the call is stored."""
    async with world() as w:
        await w.catalog.declare([declared("orders")])
        with pytest.raises(OwnedElsewhere, match="shop"):
            await w.catalog.declare([declared("fresh", app="bank"), declared("orders", app="bank", group="taken")])
        (orders,) = await w.catalog.find()
        assert (orders.name, orders.app, orders.group) == ("orders", "shop", "default")


@pytest.mark.parametrize("partitioned", [True, False])
async def test_partitioning_cannot_be_turned_on_or_off(world: WorldMaker, partitioned: bool) -> None:
    """A stored subscription stays partitioned or unpartitioned; nothing of the call is stored."""
    was, now = (Tag("t"), None) if partitioned else (None, Tag("t"))
    async with world() as w:
        await w.catalog.declare([declared("orders", was)])
        with pytest.raises(BadDeclaration):
            await w.catalog.declare([declared("fresh"), declared("orders", now)])
        assert [found.name for found in await w.catalog.find()] == ["orders"]


async def test_find_selects_by_name(world: WorldMaker) -> None:
    """Named subscriptions come by name; unknown names are simply not there."""
    async with world() as w:
        await w.catalog.declare([declared(name) for name in ("c", "a", "b")])
        assert [found.name for found in await w.catalog.find(["c", "a", "nobody"])] == ["a", "c"]
        assert await w.catalog.find([]) == []


async def test_start_without_history_is_active(world: WorldMaker) -> None:
    """Without anything to catch up a subscription is active at once, with its cursor at the start."""
    async with world() as w:
        (stored,) = await w.catalog.declare([declared("orders")])
        started = await w.catalog.start(stored, Position(5), Position(5))
        assert (started.status, started.epoch) == (Status.ACTIVE, 1)
        assert observe(await w.image()).cursors == {"orders": (5, 5, 0, 0, 0)}
        await w.append("s", *["X"] * 5)


async def test_start_below_a_boot_target_boots(world: WorldMaker) -> None:
    """With history to catch up it is booting; an unpartitioned one gets its one permanent key."""
    async with world() as w:
        await w.append("s", "X", "X", "X")
        (stored,) = await w.catalog.declare([declared("log", None)])
        started = await w.catalog.start(stored, Position(1), Position(3))
        seen = observe(await w.image())
        assert (started.status, started.epoch) == (Status.BOOTING, 1)
        assert seen.cursors == {"log": (1, 3, 0, 0, 0)}
        assert seen.partitions == {("log", ""): (1, None)}
        assert seen.ready == {("log", ""): (0, 1, "due", None, 0, 0)}


async def test_start_again_changes_nothing(world: WorldMaker) -> None:
    """Ending set-up twice leaves cursor and status of the first."""
    async with world() as w:
        (stored,) = await w.catalog.declare([declared("orders")])
        first = await w.catalog.start(stored, Position(0), Position(0))
        assert await w.catalog.start(stored, Position(7), Position(9)) == first
        assert observe(await w.image()).cursors == {"orders": (0, 0, 0, 0, 0)}


async def test_start_of_a_run_that_is_gone(world: WorldMaker) -> None:
    """A subscription that was removed or reset meanwhile is not started."""
    async with world() as w:
        (stored,) = await w.catalog.declare([declared("orders")])
        with pytest.raises(NotFound):
            await w.catalog.start(replace(stored, run=Run(stored.run + 99)), Position(0), Position(0))


async def test_one_setup_at_a_time(world: WorldMaker) -> None:
    """The set-up lease is single while it is held, and free afterwards."""
    async with world() as w:
        (stored,) = await w.catalog.declare([declared("orders")])
        async with w.catalog.setup_lease(stored, w.new_lease(), 1000.0) as first:
            assert first
            async with w.catalog.setup_lease(stored, w.new_lease(), 1000.0) as second:
                assert not second
            assert [row[1] for row in observe(await w.image()).leases.values()] == ["setup"]
        async with w.catalog.setup_lease(stored, w.new_lease(), 1000.0) as third:
            assert third
        assert observe(await w.image()).leases == {}


async def test_dead_setup_does_not_keep_the_next_waiting(world: WorldMaker) -> None:
    """An expired set-up lease is taken; who held it cannot end the set-up any more."""
    async with world() as w:
        (stored,) = await w.catalog.declare([declared("orders")])
        async with w.catalog.setup_lease(stored, w.new_lease(), 1000.0) as first:
            assert first
            await w.advance(1100.0)
            await w.work(2).take_over()
            with pytest.raises(LeaseLost):
                await w.catalog.start(stored, Position(0), Position(0))
        assert (await w.catalog.find())[0].status is Status.NEW
        async with w.catalog.setup_lease(stored, w.new_lease(), 1000.0):
            assert (await w.catalog.start(stored, Position(0), Position(0))).status is Status.ACTIVE


async def test_next_worker_sets_up_after_the_first_has_died(world: WorldMaker) -> None:
    """An expired set-up lease that nobody took over does not keep another worker waiting, and fences its owner."""
    async with world() as w:
        (stored,) = await w.catalog.declare([declared("orders")])
        second = w.make_catalog(2)
        async with w.catalog.setup_lease(stored, w.new_lease(), 1000.0):
            async with second.setup_lease(stored, w.new_lease(), 1000.0) as too_early:
                assert not too_early
            await w.advance(1100.0)
            async with second.setup_lease(stored, w.new_lease(), 1000.0) as taken:
                assert taken
                with pytest.raises(LeaseLost):
                    await w.catalog.start(stored, Position(0), Position(0))
                assert (await second.start(stored, Position(0), Position(0))).status is Status.ACTIVE
        assert observe(await w.image()).leases == {}


async def test_setup_lease_is_renewed_like_any_other(world: WorldMaker) -> None:
    """Set-up may take long: its lease is renewed by its id."""
    async with world() as w:
        (stored,) = await w.catalog.declare([declared("orders")])
        lease = w.new_lease()
        async with w.catalog.setup_lease(stored, lease, 1000.0):
            assert await w.work().renew([lease], 3000.0) == {lease}
            await w.advance(2000.0)
            assert await w.work().take_over() == []


async def booting(w: World) -> tuple[Run, int]:
    """Return a booting subscription whose history of two keys is routed."""
    await w.append("a", "X")
    await w.append("b", "X")
    orders = await w.subscribe(boot_target=2)
    await w.route(orders)
    return orders.run, 2


async def test_boot_ends_when_history_is_handled(world: WorldMaker) -> None:
    """Nothing unrouted, no entry up to the target and no lease: then booting becomes active, once."""
    async with world() as w:
        await w.append("a", "X")
        orders = await w.subscribe(boot_target=1)
        assert not await w.catalog.activate(orders.run)
        await w.route(orders)
        assert not await w.catalog.activate(orders.run)
        group = await w.claimed(orders)
        assert not await w.catalog.activate(orders.run)
        await w.work().flush(flush_of(group, (await w.load(group)).partitions))
        assert await w.catalog.activate(orders.run)
        assert not await w.catalog.activate(orders.run)
        (stored,) = await w.catalog.find()
        assert (stored.status, stored.epoch) == (Status.ACTIVE, orders.epoch + 1)


@pytest.mark.parametrize(
    ("state", "delay", "activates"),
    [
        (FailureState.BACKING_OFF, 1000.0, False),
        (FailureState.PARKED, 1000.0, True),
        (FailureState.WAITING, None, True),
    ],
)
async def test_boot_waits_for_retries_not_for_parked_keys(
    world: WorldMaker, state: FailureState, delay: float | None, activates: bool
) -> None:
    """A key that backs off delays the end of booting, a parked one or one that waits for a person does not."""
    async with world() as w:
        run, _ = await booting(w)
        (orders,) = await w.catalog.find()
        group = await w.claimed(orders)
        found = by_key(await w.load(group))
        await w.work().fail(failure_of(group, found["a"], state=state, delay=delay))
        await w.work().flush(flush_of(group, [found["b"]]))
        assert await w.catalog.activate(run) is activates


async def test_boot_waits_for_every_lease(world: WorldMaker) -> None:
    """While a group is in the hands of a lane booting does not end, even when its keys are parked meanwhile."""
    async with world() as w:
        run, _ = await booting(w)
        (orders,) = await w.catalog.find()
        group = await w.claimed(orders)
        for partition in (await w.load(group)).partitions:
            await w.work().fail(failure_of(group, partition, state=FailureState.PARKED))
        assert not await w.catalog.activate(run)
        await w.work().release([group.lease])
        assert await w.catalog.activate(run)


async def test_boot_does_not_wait_for_held_keys(world: WorldMaker) -> None:
    """A key that a person has paused does not delay the end of booting."""
    async with world() as w:
        run, _ = await booting(w)
        (orders,) = await w.catalog.find()
        await w.set_hold(orders, "a", "paused")
        await w.handle_all(orders)
        assert await w.catalog.activate(run)


async def test_boot_of_the_whole_log(world: WorldMaker) -> None:
    """An unpartitioned subscription is booted when its position has passed the last event up to the target."""
    async with world() as w:
        await w.append("a", "X", "X", "X")
        log = await w.subscribe("log", None, boot_target=2)
        for end in (1, 2):
            assert not await w.catalog.activate(log.run)
            group = await w.claim_log(log)
            assert group is not None
            loaded = await w.work().load_log(group, EventFilter(), Position(3), 1, 10**6)
            assert loaded.partitions[0].to == end
            await w.work().flush(log_flush_of(group, loaded))
        assert await w.claim_log(log) is None
        assert await w.catalog.activate(log.run)
        assert await w.claim_log(log) is not None


async def test_stopped_main_says_why_and_when(world: WorldMaker) -> None:
    """An error keeps the status to return to; a second one counts a try and keeps the epoch."""
    async with world() as w:
        orders = await w.subscribe()
        await w.catalog.stop_main(orders.run, ErrorClass.KEY, "no key at 3", 1000.0)
        (stopped,) = await w.catalog.find()
        assert (stopped.status, stopped.prev_status, stopped.epoch) == (Status.ERROR, Status.ACTIVE, orders.epoch + 1)
        assert (stopped.error_class, stopped.reason, stopped.tries) == (ErrorClass.KEY, "no key at 3", 1)
        assert stopped.retry_at is not None
        await w.catalog.stop_main(orders.run, ErrorClass.SYSTEMIC, "gone \0", 2000.0)
        seen = observe(await w.image()).subscriptions["orders"]
        expected = (Status.ERROR, Status.ACTIVE, orders.epoch + 1, ErrorClass.SYSTEMIC, "gone \\0", 2, 2000.0)
        assert seen[:7] == expected


async def test_a_log_that_went_back_stays_the_reason(world: WorldMaker) -> None:
    """No other error takes its place, for those are tried again by themselves; only a try of its own class ends it."""
    async with world() as w:
        orders = await w.subscribe()
        await w.catalog.stop_main(orders.run, ErrorClass.KEY, "no key at 3", 1000.0)
        await w.catalog.stop_main(orders.run, ErrorClass.LOG, "went back", 0.0)
        await w.catalog.stop_main(orders.run, ErrorClass.KEY, "no key at 3", 1000.0)
        (stopped,) = await w.catalog.find()
        assert (stopped.error_class, stopped.reason, stopped.tries) == (ErrorClass.LOG, "went back", 3)
        assert not await w.catalog.begin_retry(orders.run, ErrorClass.KEY, force=True)
        assert await w.catalog.begin_retry(orders.run, ErrorClass.LOG, force=True)
        assert (await w.catalog.find())[0].status is Status.ACTIVE


@pytest.mark.parametrize("status", [Status.PAUSED, Status.DETACHED, Status.FINISHED])
async def test_standing_main_is_not_stopped(world: WorldMaker, status: Status) -> None:
    """An error does not turn a pause into something that reactivates by itself."""
    async with world() as w:
        orders = await w.subscribe()
        await w.set_status("orders", status)
        before = await w.catalog.find()
        await w.catalog.stop_main(orders.run, ErrorClass.SYSTEMIC, "gone", 10.0)
        await w.catalog.stop_main(Run(orders.run + 99), ErrorClass.SYSTEMIC, "gone", 10.0)
        assert await w.catalog.find() == before
        assert not await w.catalog.begin_retry(orders.run, ErrorClass.SYSTEMIC, force=True)


async def test_retry_comes_back_when_it_is_due(world: WorldMaker) -> None:
    """A main in error returns to where it came from, by its class, when its time has come or by force."""
    async with world() as w:
        orders = await w.subscribe()
        await w.catalog.stop_main(orders.run, ErrorClass.KEY, "no key", 1000.0)
        assert not await w.catalog.begin_retry(orders.run, ErrorClass.KEY)
        await w.advance(1100.0)
        assert not await w.catalog.begin_retry(orders.run, ErrorClass.SYSTEMIC)
        assert await w.catalog.begin_retry(orders.run, ErrorClass.KEY)
        assert not await w.catalog.begin_retry(orders.run, ErrorClass.KEY)
        (back,) = await w.catalog.find()
        assert (back.status, back.epoch, back.prev_status) == (Status.ACTIVE, orders.epoch + 2, None)
        assert (back.error_class, back.reason, back.retry_at) == (None, None, None)
        await w.catalog.stop_main(orders.run, ErrorClass.KEY, "no key", 1000.0)
        assert await w.catalog.begin_retry(orders.run, ErrorClass.KEY, force=True)


async def test_error_while_booting_returns_to_booting(world: WorldMaker) -> None:
    """The status before the error is kept."""
    async with world() as w:
        run, _ = await booting(w)
        await w.catalog.stop_main(run, ErrorClass.KEY, "no key", 1000.0)
        await w.catalog.begin_retry(run, ErrorClass.KEY, force=True)
        assert (await w.catalog.find())[0].status is Status.BOOTING


async def test_caught_up_from_routing_to_done(world: WorldMaker) -> None:
    """Behind, then due, then leased, then handled; `low` is the lowest position that is not handled."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X", "X")
        await w.append("b", "X")
        behind = await w.catalog.caught_up(orders.run, LINE)
        assert (behind.position, behind.behind, behind.low, behind.due, behind.leased) == (0, True, None, False, False)
        assert not (await w.catalog.caught_up(orders.run, Position(0))).behind

        await w.route(orders)
        due = await w.catalog.caught_up(orders.run, LINE)
        assert (due.position, due.behind, due.low, due.due, due.leased) == (3, False, 1, True, False)
        assert due.handled == 0

        group = await w.claimed(orders)
        loaded = await w.load(group)
        leased = await w.catalog.caught_up(orders.run, LINE)
        assert (leased.low, leased.due, leased.leased) == (1, False, True)

        await w.work().flush(flush_of(group, [by_key(loaded)["a"]], FlushMode.PART))
        assert (await w.catalog.caught_up(orders.run, LINE)).handled == 2
        await w.work().flush(flush_of(group, [by_key(loaded)["b"]]))
        done = await w.catalog.caught_up(orders.run, LINE)
        assert (done.handled, done.low, done.due, done.leased, done.parked) == (3, None, False, False, None)


async def test_caught_up_tells_who_stands_in_the_way(world: WorldMaker) -> None:
    """Keys that back off, that are parked and that are held are told apart; the lowest of the latter is named."""
    async with world() as w:
        orders = await w.subscribe()
        for stream in ("a", "b", "c", "d"):
            await w.append(stream, "X")
        await w.route(orders)
        await w.set_hold(orders, "d", "paused")
        group = await w.claimed(orders)
        found = by_key(await w.load(group))
        await w.work().fail(failure_of(group, found["a"]))
        backing = await w.catalog.caught_up(orders.run, LINE)
        assert (backing.backing_off, backing.parked, backing.parked_key) == (True, 4, "d")

        await w.work().fail(failure_of(group, found["c"], state=FailureState.WAITING, delay=None))
        assert (await w.catalog.caught_up(orders.run, LINE)).parked_key == "c"
        await w.work().fail(failure_of(group, found["b"], state=FailureState.PARKED))
        await w.work().release([group.lease])
        parked = await w.catalog.caught_up(orders.run, LINE)
        assert (parked.parked, parked.parked_key, parked.low) == (2, "b", 1)
        assert (parked.due, parked.leased, parked.backing_off) == (False, False, True)

        await w.advance(1100.0)
        assert (await w.catalog.caught_up(orders.run, LINE)).due


async def test_caught_up_of_one_key(world: WorldMaker) -> None:
    """The answer about one key looks at no other; a key that does not exist has nothing left."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X")
        await w.append("b", "X")
        await w.route(orders)
        group = await w.claimed(orders, parts=1)
        a = await w.catalog.caught_up(orders.run, LINE, PartitionKey("a"))
        b = await w.catalog.caught_up(orders.run, LINE, PartitionKey("b"))
        c = await w.catalog.caught_up(orders.run, LINE, PartitionKey("c"))
        assert sorted([(a.due, a.leased), (b.due, b.leased)]) == [(False, True), (True, False)]
        assert (a.low, b.low, c.low) == (1, 2, None)
        assert (c.due, c.leased, c.backing_off, c.parked) == (False, False, False, None)
        loaded = await w.load(group)
        await w.work().fail(failure_of(group, loaded.partitions[0], state=FailureState.PARKED))
        await w.work().release([group.lease])
        parked = await w.catalog.caught_up(orders.run, LINE, loaded.partitions[0].key)
        assert (parked.parked, parked.parked_key) == (loaded.partitions[0].events[0].position, loaded.partitions[0].key)


@pytest.mark.parametrize("key", [None, PartitionKey("a")])
async def test_slowed_key_counts_as_backing_off(world: WorldMaker, key: PartitionKey | None) -> None:
    """A key that asked for a pause will be tried by itself; so says the answer about all keys, and about it alone."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X")
        await w.route(orders)
        group = await w.claimed(orders)
        await w.work().slow(group.lease, group.parts[0].part, 1000.0)
        await w.work().release([group.lease])
        caught = await w.catalog.caught_up(orders.run, LINE, key)
        assert (caught.low, caught.due, caught.leased, caught.backing_off) == (1, False, False, True)


async def test_held_key_does_not_back_off(world: WorldMaker) -> None:
    """A failing key that a person holds is not tried by itself, whether one asks about all keys or about it."""
    async with world() as w:
        orders = await w.subscribe()
        await w.append("a", "X")
        await w.route(orders)
        group = await w.claimed(orders)
        loaded = await w.load(group)
        await w.work().fail(failure_of(group, loaded.partitions[0]))
        await w.work().release([group.lease])
        await w.set_hold(orders, "a", "paused")
        for key in (None, PartitionKey("a")):
            caught = await w.catalog.caught_up(orders.run, LINE, key)
            assert (caught.parked, caught.parked_key, caught.backing_off) == (1, "a", False)


async def test_caught_up_of_the_whole_log(world: WorldMaker) -> None:
    """The one permanent key of an unpartitioned subscription is work only when something lies above it."""
    async with world() as w:
        log = await w.subscribe("log", None)
        idle = await w.catalog.caught_up(log.run, LINE)
        assert (idle.position, idle.behind, idle.due, idle.leased, idle.low) == (0, False, False, False, None)
        await w.append("a", "X", "X")
        due = await w.catalog.caught_up(log.run, LINE)
        assert (due.behind, due.due, due.handled) == (True, True, 0)
        group = await w.claim_log(log)
        assert group is not None
        loaded = await w.work().load_log(group, EventFilter(), Position(1), 10, 10**6)
        await w.work().flush(log_flush_of(group, loaded, mode=FlushMode.KEEP))
        assert (await w.catalog.caught_up(log.run, LINE)).leased
        await w.work().fail(failure_of(group, loaded.partitions[0], position=2, state=FailureState.WAITING, delay=None))
        await w.work().release([group.lease])
        parked = await w.catalog.caught_up(log.run, LINE)
        assert (parked.position, parked.handled, parked.behind, parked.due) == (1, 1, True, False)
        assert (parked.parked, parked.parked_key, parked.backing_off) == (2, "", False)


async def test_caught_up_of_nobody(world: WorldMaker) -> None:
    """A run that is not there, or not started, has nothing."""
    async with world() as w:
        (stored,) = await w.catalog.declare([declared("orders")])
        await w.append("a", "X")
        for run in (stored.run, Run(stored.run + 99)):
            nothing = await w.catalog.caught_up(run, LINE)
            assert (nothing.position, nothing.low, nothing.due, nothing.leased) == (0, None, False, False)
