"""The demonstration's subscribers, one of each shape: by stream, by tag, the whole log, with side effects."""

import asyncio
import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from headrace.domain.event import Event
from headrace.domain.ids import PartitionKey
from headrace.failures.backoff import RetryPolicy
from headrace.partitioning.keys import Stream, Tag
from headrace.ports.connection import Connection
from headrace.runtime.app import App
from headrace.runtime.demo.plot import FOLDER, MAILBOX, RELEASE
from headrace.runtime.demo.shop import PAYMENT
from headrace.runtime.demo.statements import statement
from headrace.subscribers.declare import batch, on, projector, reactor, setup

REFUND = "Refund paid"
QUICK = RetryPolicy(attempts=1, base=timedelta(seconds=2))
"""Nobody looks at a demonstration for minutes: one more try after two seconds, then the key is parked."""
MAIL_SECONDS = 0.01
"""What a mail server takes to answer."""
MAILS_AT_ONCE = 32


def has_fix() -> bool:
    """Tell whether this worker runs the release with the fix."""
    return os.environ.get(RELEASE, "2") != "1"


@projector("customers", partition_by=Stream(), retry=QUICK)
class Customers:
    """One row per customer, from every event, one after the other."""

    @setup
    async def create(self, db: Connection) -> None:
        """Create the read model."""
        await db.execute(statement("create_customers"))

    @on()
    async def count(self, event: Event[Any], key: PartitionKey, db: Connection) -> None:
        """Count the event, and what it says of money; release 1 trusts that every amount is a number."""
        change = 0
        if event.type in {PAYMENT, REFUND}:
            cents = event.data["cents"]
            if has_fix():
                cents = int(cents)
            change = +cents if event.type == PAYMENT else -cents
        db.defer(statement("count_customer"), str(key), event.version, change)


@projector("products", partition_by=Tag("product"))
class Products:
    """One row per product, a batch of events at a time."""

    @setup
    async def create(self, db: Connection) -> None:
        """Create the read model."""
        await db.execute(statement("create_products"))

    @batch("Item added", "Item removed", "Item returned")
    async def fold(self, events: list[Event[Any]], db: Connection) -> None:
        """Add the batch up, then write each product once."""
        sums: dict[str, list[int]] = {}
        for event in events:
            counts = sums.setdefault(str(event.key), [0, 0, 0])
            counts[("Item added", "Item removed", "Item returned").index(event.type)] += 1
        await db.executemany(statement("count_product"), [(key, *counts) for key, counts in sums.items()])


@projector("cash_book")
class CashBook:
    """The whole log in its one order: every payment with the balance after it."""

    @setup
    async def create(self, db: Connection) -> None:
        """Create the read model."""
        await db.execute(statement("create_cash_book"))

    @on(PAYMENT)
    async def received(self, event: Event[Any], db: Connection) -> None:
        """Book money that came in."""
        db.defer(statement("book"), event.position, int(event.data["cents"]))

    @on(REFUND)
    async def refunded(self, event: Event[Any], db: Connection) -> None:
        """Book money that went out."""
        db.defer(statement("book"), event.position, -event.data["cents"])


@reactor("parcel_mails", partition_by=Stream(), start="beginning", concurrency=MAILS_AT_ONCE)
class ParcelMails:
    """A side effect outside the database: one mail per parcel, here a line of a file."""

    @on("Order shipped")
    async def send(self, event: Event[Any]) -> None:
        """Send the mail."""
        await send_mail(event)


async def send_mail(event: Event[Any]) -> None:
    """Wait as for a mail server, then write the mail; its id is the same however often it is sent."""
    await asyncio.sleep(MAIL_SECONDS)
    mail = {"id": str(event.execution_id), "to": event.stream, "version": event.version, "at": time.time_ns()}
    path = Path(os.environ[FOLDER]) / MAILBOX / f"{os.getpid()}.jsonl"
    with path.open("a", encoding="utf-8") as mailbox:
        mailbox.write(json.dumps(mail) + "\n")


app = App(Customers(), Products(), CashBook(), ParcelMails(), name="demo")
