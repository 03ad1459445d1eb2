"""Two read models and a reactor for a small shop. README.md beside this file says how to run them."""

from pydantic import BaseModel

from headrace import App, Connection, Event, PartitionKey, Stream, Tag, batch, on, on_failed, projector, reactor, setup


class OrderPlaced(BaseModel):
    """A customer has ordered; the event carries the tag ``customer:…``."""

    customer: str
    total_cents: int


class OrderCancelled(BaseModel):
    """An order was taken back."""

    reason: str


class CustomerRegistered(BaseModel):
    """Somebody is new."""

    name: str
    mail: str


@projector("orders_by_customer", partition_by=Tag("customer"), remove_idle_after=3600)
class OrdersByCustomer:
    """One row for each customer. Each customer is a partition, so no two workers ever want the same row."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the table; may run again after a crash."""
        await db.execute(
            "create table if not exists orders_by_customer"
            " (customer text primary key, orders int not null, total_cents bigint not null)"
        )

    @on(OrderPlaced)
    async def placed(self, event: Event[OrderPlaced], key: PartitionKey, db: Connection) -> None:
        """Add one order. Adding is safe: this commits together with the position, so it happens once."""
        await db.execute(
            "insert into orders_by_customer as o values ($1, 1, $2) on conflict (customer) do update"
            " set orders = o.orders + 1, total_cents = o.total_cents + excluded.total_cents",
            key,
            event.data.total_cents,
        )


@projector("order_states", partition_by=Stream())
class OrderStates:
    """One row for each order, written for many orders at once."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the table."""
        await db.execute(
            "create table if not exists order_states (order_id text primary key, state text, total_cents bigint)"
        )

    @batch(OrderPlaced, OrderCancelled)
    async def fold(self, events: list[Event[OrderPlaced | OrderCancelled]], db: Connection) -> None:
        """Fold what waits into one row for each order, and write the rows in one go.

        The events come order by order, those of one order as they happened. A cancelled order is worth nothing.
        """
        rows: dict[str, tuple[str, str, int]] = {}
        for event in events:
            if isinstance(event.data, OrderPlaced):
                rows[event.stream] = (event.stream, "placed", event.data.total_cents)
            else:
                rows[event.stream] = (event.stream, "cancelled", 0)
        await db.executemany(
            "insert into order_states values ($1, $2, $3) on conflict (order_id) do update"
            " set state = excluded.state, total_cents = excluded.total_cents",
            list(rows.values()),
        )


@reactor("welcome_mail", partition_by=Stream())
class WelcomeMail:
    """Greets customers who register from now on: a reactor starts at the end of the log, never at its beginning."""

    @on(CustomerRegistered)
    async def greet(self, event: Event[CustomerRegistered]) -> None:
        """Send one mail. After a crash it may be asked twice; the id lets the mail service see that."""
        print(f"mail to {event.data.mail}: welcome, {event.data.name} (id {event.execution_id})", flush=True)

    @on_failed
    async def give_up(self, event: Event[CustomerRegistered], error: BaseException) -> None:
        """Let an event go whose retries are spent, rather than park its customer."""
        print(f"no mail for the event at {event.position}: {error}", flush=True)


app = App(OrdersByCustomer(), OrderStates(), WelcomeMail())
