"""`memory_run`: subscribers without a database, by plain calls, with a clock that moves by hand."""

import pytest
from pydantic import BaseModel

from headrace import App, Connection, Event, NewEvent, PartitionKey, Stream, batch, on, projector, reactor, setup
from headrace.domain.engine_events import KeySlowed
from headrace.domain.errors import Unavailable, UsageError
from headrace.ports.work import FailureState
from headrace.testing import HandlersFailed, MemoryRun

INSERT = "insert into orders values ($1, $2)"
HOUR = 3600.0


class OrderPlaced(BaseModel):
    """A customer has ordered."""

    total: int


@projector("orders", partition_by=Stream())
class Orders:
    """Writes a row for each order; one total it cannot bear."""

    def __init__(self) -> None:
        self.unlucky = 13

    @setup
    async def create(self, db: Connection) -> None:
        """Make the table."""
        await db.execute("create table orders (id text, total int)")

    @on(OrderPlaced)
    async def placed(self, event: Event[OrderPlaced], key: PartitionKey, db: Connection) -> None:
        """Write one row."""
        if event.data.total == self.unlucky:
            raise ValueError("unlucky")
        await db.execute("insert into orders\n  values ($1, $2)", key, event.data.total)


@projector("prices", partition_by=Stream())
class Prices:
    """Reads before it writes."""

    @on(OrderPlaced)
    async def placed(self, event: Event[OrderPlaced], db: Connection) -> None:
        """Write what the rate makes of the total."""
        rate = await db.fetchval("select rate from rates where day = $1", event.position)
        db.defer("insert into prices values ($1)", rate * event.data.total)


@reactor("mails", partition_by=Stream())
class Mails:
    """Remembers what it has sent."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    @on(OrderPlaced)
    def send(self, event: Event[OrderPlaced]) -> None:
        """Send one mail, blocking."""
        self.sent.append(event.data.total)


def test_given_run_then(memory_run: MemoryRun) -> None:
    """What handlers send is kept, set-up first; blanks of a statement do not count."""
    memory_run.given("order-1", OrderPlaced(total=3), NewEvent("OrderPlaced", OrderPlaced(total=4)))
    assert memory_run.run(Orders()).processed == 2
    memory_run.then_sent("create table orders")
    memory_run.then_sent(INSERT, "order-1", 3)
    memory_run.then_sent(INSERT, "order-1", 4)

    memory_run.given("order-2", OrderPlaced(total=5))
    assert memory_run.run().processed == 1
    assert [statement.args for statement in memory_run.sent[1:]] == [("order-1", 3), ("order-1", 4), ("order-2", 5)]


def test_a_statement_that_was_not_sent_is_shown_beside_what_was(memory_run: MemoryRun) -> None:
    """A failed expectation names what was sent, with its arguments."""
    memory_run.given("order-1", OrderPlaced(total=3))
    memory_run.run(Orders())
    with pytest.raises(AssertionError) as failed:
        memory_run.then_sent(INSERT, "order-1", 4)
    assert "no handler has sent 'insert into orders values ($1, $2)' with ('order-1', 4)" in str(failed.value)
    assert "insert into orders values ($1, $2)  ('order-1', 3)" in str(failed.value)


def test_a_handler_that_raises_ends_the_test(memory_run: MemoryRun) -> None:
    """An error that nobody expects is the test's, with subscription, key, event and trace."""
    memory_run.given("order-1", OrderPlaced(total=13))
    with pytest.raises(HandlersFailed, match=r"(?s)orders#order-1 at event 1: .*ValueError: unlucky"):
        memory_run.run(Orders())


def test_a_key_that_fails_is_tried_again_when_its_time_has_come(memory_run: MemoryRun) -> None:
    """An expected failure is data; hours of back-off cost nothing; a healed key goes on."""
    orders = Orders()
    memory_run.given("order-1", OrderPlaced(total=13))
    memory_run.given("order-2", OrderPlaced(total=1))
    memory_run.run(orders, failing=True)
    (failure,) = memory_run.failures()
    assert (failure.key, failure.state, failure.error_type) == ("order-1", FailureState.BACKING_OFF, "ValueError")
    memory_run.then_sent(INSERT, "order-2", 1)

    orders.unlucky = 0
    assert memory_run.run().processed == 0
    memory_run.advance(HOUR)
    assert memory_run.run().processed == 1
    assert memory_run.failures() == []
    memory_run.then_sent(INSERT, "order-1", 13)


def test_what_a_handler_reads_is_answered_by_the_test(memory_run: MemoryRun) -> None:
    """The last answer that fits wins; a read that nothing answers says how to answer it."""
    memory_run.given("order-1", OrderPlaced(total=3))
    with pytest.raises(HandlersFailed, match=r"memory_run\.answer\('select rate from rates"):
        memory_run.run(Prices())
    memory_run.answer("select rate from rates", (2,))
    memory_run.answer("select rate from  rates where", {"rate": 7})
    memory_run.advance(HOUR)
    memory_run.run()
    memory_run.then_sent("insert into prices values ($1)", 21)


def test_a_reactor_starts_where_it_is_set_up(memory_run: MemoryRun) -> None:
    """`set_up` decides where a reactor starts: what was there before it is not handled."""
    mails = Mails()
    memory_run.given("order-1", OrderPlaced(total=1))
    memory_run.set_up(mails)
    memory_run.given("order-1", OrderPlaced(total=2))
    memory_run.run()
    assert mails.sent == [2]


async def test_the_words_can_be_said_in_a_loop(memory_run: MemoryRun) -> None:
    """A test that runs in an event loop itself says the same words."""
    memory_run.given("order-1", OrderPlaced(total=3))
    assert memory_run.run(App(Orders(), name="shop")).processed == 1
    memory_run.then_sent(INSERT, "order-1", 3)


def test_a_run_of_nothing_is_refused(memory_run: MemoryRun) -> None:
    """The first run names what runs, and `given` names an event; the message shows how."""
    with pytest.raises(UsageError, match=r"run\(app\), or run\(OrdersByCustomer\(\)\)"):
        memory_run.run()
    with pytest.raises(UsageError, match=r"given\('order-1', OrderPlaced"):
        memory_run.given("order-1")


@projector("forgetful", partition_by=Stream())
class Forgetful:
    """Forgets one `await`, in a batch over all keys."""

    @batch(OrderPlaced)
    async def placed(self, events: list[Event[OrderPlaced]], db: Connection) -> None:
        """Write a row each."""
        for event in events:
            if event.data.total == 13:
                db.execute(INSERT, event.stream, 13)  # type: ignore[unused-coroutine]
            else:
                await db.execute(INSERT, event.stream, event.data.total)


@reactor("forgetful mails", partition_by=Stream())
class ForgetfulMails:
    """Forgets it in a reactor."""

    @on(OrderPlaced)
    async def send(self, event: Event[OrderPlaced], db: Connection) -> None:
        """Remember that it was sent."""
        if event.data.total == 13:
            db.execute(INSERT, event.stream, 13)  # type: ignore[unused-coroutine]


@projector("forgetful and away", partition_by=Stream())
class ForgetfulAndAway:
    """Forgets it, and then its own target does not answer."""

    @on(OrderPlaced)
    async def placed(self, event: Event[OrderPlaced], db: Connection) -> None:
        """Write, and ask."""
        db.execute(INSERT, event.stream, 13)  # type: ignore[unused-coroutine]
        raise Unavailable("their service is down")


@pytest.mark.parametrize("subscriber", [Forgetful, ForgetfulMails])
def test_a_forgotten_await_is_charged_to_its_key(memory_run: MemoryRun, subscriber: type[object]) -> None:
    """The event is not passed over: its key fails with the name of the call, and the keys beside it go on."""
    for number, total in enumerate([3, 13, 5]):
        memory_run.given(f"order-{number}", OrderPlaced(total=total))
    if subscriber is ForgetfulMails:
        memory_run.set_up(subscriber())
        for number, total in enumerate([3, 13, 5]):
            memory_run.given(f"order-{number}", OrderPlaced(total=total))
    memory_run.run(subscriber(), failing=True)
    (failure,) = memory_run.failures()
    assert failure.key == "order-1"
    assert "execute('insert into orders values ($1, $2)') was called" in (failure.error or "")
    assert "await it" in (failure.error or "")
    if subscriber is Forgetful:
        assert [statement.args for statement in memory_run.sent] == [("order-0", 3), ("order-2", 5)]


def test_a_forgotten_await_does_not_look_like_a_lost_database(memory_run: MemoryRun) -> None:
    """The handler's own error counts: its key is slowed, and the worker does not take its database for lost."""
    memory_run.given("order-1", OrderPlaced(total=3))
    memory_run.run(ForgetfulAndAway(), failing=True)
    assert any(isinstance(noticed, KeySlowed) for noticed in memory_run.observer.events)
    assert memory_run.sent == []
