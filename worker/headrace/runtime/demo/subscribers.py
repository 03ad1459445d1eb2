"""The demonstration's subscribers, one of each shape: by stream, by tag, the whole log, with side effects."""

import json
import os
import time
from pathlib import Path
from typing import Any

from headrace.domain.event import Event
from headrace.domain.ids import PartitionKey
from headrace.partitioning.keys import Stream, Tag
from headrace.ports.connection import Connection
from headrace.runtime.app import App
from headrace.runtime.demo.statements import statement
from headrace.subscribers.declare import batch, on, projector, reactor, setup

MAILBOX = "HEADRACE_DEMO_MAILBOX"
"""Folder into which the reactor writes its mails; one file a process."""


@projector("customers", partition_by=Stream())
class Customers:
    """One row per customer, from every event, one after the other."""

    @setup
    async def create(self, db: Connection) -> None:
        """Create the read model."""
        await db.execute(statement("create_customers"))

    @on()
    async def count(self, event: Event[Any], key: PartitionKey, db: Connection) -> None:
        """Count the event, and what it says of money."""
        cents = event.data.get("cents", 0) if event.type in {"Payment received", "Refund paid"} else 0
        sign = -1 if event.type == "Refund paid" else 1
        db.defer(statement("count_customer"), str(key), event.version, sign * cents)


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

    @on("Payment received")
    async def received(self, event: Event[Any], db: Connection) -> None:
        """Book money that came in."""
        db.defer(statement("book"), event.position, event.data["cents"])

    @on("Refund paid")
    async def refunded(self, event: Event[Any], db: Connection) -> None:
        """Book money that went out."""
        db.defer(statement("book"), event.position, -event.data["cents"])


@reactor("parcel_mails", partition_by=Stream(), start="beginning")
class ParcelMails:
    """A side effect outside the database: one mail per parcel, here a line of a file."""

    @on("Order shipped")
    async def send(self, event: Event[Any]) -> None:
        """Write the mail; its id is the same however often it is sent."""
        mail = {"id": str(event.execution_id), "to": event.stream, "version": event.version, "at": time.time_ns()}
        path = Path(os.environ[MAILBOX]) / f"{os.getpid()}.jsonl"
        with path.open("a", encoding="utf-8") as mailbox:
            mailbox.write(json.dumps(mail) + "\n")


app = App(Customers(), Products(), CashBook(), ParcelMails(), name="demo")
