"""Somebody else's application: an event-sourced shop on the library `eventsourcing`, which knows nothing of Headrace.

Its library makes the table, locks it, writes it and encodes what is in it. Nothing here may import headrace.
"""

import hashlib
import os
from decimal import Decimal
from urllib.parse import urlsplit
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import Cipher
from eventsourcing.utils import Environment, get_topic

TABLE = "shop_events"
SEALED = {"COMPRESSOR_TOPIC": "zlib", "CIPHER_TOPIC": "support.apps.their_shop:PadCipher", "CIPHER_KEY": "a key"}


class PadCipher(Cipher):
    """Encrypts for a test: a nonce, then the text under a pad of key and nonce. Without any of what makes one safe."""

    def __init__(self, environment: Environment) -> None:
        self._key = (environment.get("CIPHER_KEY") or "").encode()

    def encrypt(self, plaintext: bytes) -> bytes:
        """Return nonce and ciphertext."""
        nonce = os.urandom(16)
        return nonce + self._under_pad(nonce, plaintext)

    def decrypt(self, ciphertext: bytes) -> bytes:
        """Return the plaintext."""
        return self._under_pad(ciphertext[:16], ciphertext[16:])

    def _under_pad(self, nonce: bytes, text: bytes) -> bytes:
        pad = hashlib.shake_256(self._key + nonce).digest(len(text))
        return bytes(one ^ other for one, other in zip(text, pad, strict=True))


class Order(Aggregate):
    """An order with lines."""

    def __init__(self, customer: UUID) -> None:
        self.customer = customer
        self.total = Decimal(0)

    @event("LineAdded")
    def add(self, article: str, price: Decimal) -> None:
        """Add a line."""
        self.total += price

    @event("Paid")
    def pay(self) -> None:
        """Pay it."""


class Shop(Application[UUID]):
    """The application; its name is that of its table."""

    def place(self, customer: UUID, lines: int, article: str = "tea") -> UUID:
        """Place an order with some lines, in one transaction."""
        order = Order(customer)
        for number in range(lines):
            order.add(article, Decimal(number + 1) / 4)
        self.save(order)
        return order.id

    def extend(self, *orders: UUID, pay: bool = False) -> None:
        """Add a line to each of some orders, all in one transaction."""
        found: list[Order] = [self.repository.get(order) for order in orders]
        for order in found:
            order.add("milk", Decimal("0.75"))
            if pay:
                order.pay()
        self.save(*found)


def shop_on(dsn: str, **variables: str) -> Shop:
    """Return the application on a PostgreSQL."""
    url = urlsplit(dsn)
    return Shop(
        env={
            "PERSISTENCE_MODULE": "eventsourcing.postgres",
            "POSTGRES_DBNAME": url.path.lstrip("/"),
            "POSTGRES_HOST": url.hostname or "",
            "POSTGRES_PORT": str(url.port),
            "POSTGRES_USER": url.username or "",
            "POSTGRES_PASSWORD": url.password or "",
            "POSTGRES_POOL_SIZE": "4",
            **variables,
        }
    )


LINE_ADDED = get_topic(Order.LineAdded)  # type: ignore[attr-defined]
