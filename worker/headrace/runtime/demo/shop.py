"""A shop's event log, made up: the same seed gives the same log, byte for byte.

A few customers buy most of what is bought, as in real shops. Every customer follows the rules of the shop: nothing is
shipped that was not paid, nothing is refunded that was not returned. One payment of one busy customer is poisoned: its
amount is a text, which whoever expects a number stumbles over.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import accumulate

CUSTOMERS = 5_000
PRODUCTS = 60
SKEW = 0.9
BUSY_CUSTOMERS = 30
POISON_AFTER = 0.2
"""So much of the log is there before the poisoned event."""
OPENING_DAY = datetime(2026, 1, 1, tzinfo=UTC)

PAYMENT = "Payment received"
TYPES = (
    "Customer registered",
    "Address changed",
    "Item added",
    "Item removed",
    "Order placed",
    PAYMENT,
    "Payment failed",
    "Order cancelled",
    "Order shipped",
    "Order delivered",
    "Item returned",
    "Refund paid",
)

Fact = tuple[str, dict[str, object], list[str]]
"""Type, data and tags."""


@dataclass(slots=True)
class _Customer:
    """What the shop knows of one customer."""

    name: str
    registered: bool = False
    orders: int = 0
    cart: list[tuple[int, int]] = field(default_factory=list)
    # Orders by what may happen to them next: number, cents, product.
    placed: list[tuple[int, int, int]] = field(default_factory=list)
    paid: list[tuple[int, int, int]] = field(default_factory=list)
    shipped: list[tuple[int, int, int]] = field(default_factory=list)
    delivered: list[tuple[int, int, int]] = field(default_factory=list)
    returned: list[tuple[int, int, int]] = field(default_factory=list)


def shop_log(events: int, seed: int = 1) -> Iterator[bytes]:
    """Yield so many lines of JSON, each one event with its line end."""
    chance = random.Random(seed)  # noqa: S311 - a story, not a secret
    weights = list(accumulate(1 / (rank + 10) ** SKEW for rank in range(CUSTOMERS)))
    numbers = list(range(CUSTOMERS))
    chance.shuffle(numbers)
    customers = [_Customer(f"customer-{number:04}") for number in numbers]
    strangers = list(customers)
    now = OPENING_DAY
    busy = {customer.name for customer in customers[:BUSY_CUSTOMERS]}
    poisoned = False
    for number in range(events):
        # The rank of a customer decides how often it buys; now and then somebody comes for the first time.
        (customer,) = (
            (strangers.pop(),) if strangers and number % 15 == 0 else chance.choices(customers, cum_weights=weights)
        )
        now += timedelta(milliseconds=chance.randrange(1, 60_000))
        type_, data, tags = _next_fact(customer, chance)
        if not poisoned and number >= POISON_AFTER * events and type_ == PAYMENT and customer.name in busy:
            poisoned = True
            data = data | {"cents": str(data["cents"])}
        line: dict[str, object] = {"stream": customer.name, "type": type_, "data": data}
        line["recorded_at"] = now.isoformat(timespec="milliseconds")
        if tags:
            line["tags"] = tags
        yield json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _next_fact(customer: _Customer, chance: random.Random) -> Fact:
    """Return what the customer, or the shop for the customer, does next."""
    if not customer.registered:
        customer.registered = True
        return "Customer registered", {"name": f"Customer {customer.name[-4:]}"}, []
    queues = (customer.returned, customer.delivered, customer.shipped, customer.paid, customer.placed)
    for queue, step in zip(queues, (_refund, _return, _deliver, _ship, _settle), strict=True):
        if queue and (fact := step(customer, chance)):
            return fact
    return _shop(customer, chance)


def _refund(customer: _Customer, chance: random.Random) -> Fact | None:
    if chance.random() > 0.6:  # noqa: PLR2004 - this and the odds below are the story
        return None
    order, cents, _ = customer.returned.pop(0)
    return "Refund paid", {"order": order, "cents": cents}, []


def _return(customer: _Customer, chance: random.Random) -> Fact | None:
    order, cents, product = customer.delivered.pop(0)
    if chance.random() > 0.12:  # noqa: PLR2004
        return None
    customer.returned.append((order, cents, product))
    return "Item returned", {"order": order}, [f"product:{product}"]


def _deliver(customer: _Customer, chance: random.Random) -> Fact | None:
    if chance.random() > 0.7:  # noqa: PLR2004
        return None
    done = customer.shipped.pop(0)
    customer.delivered.append(done)
    return "Order delivered", {"order": done[0]}, []


def _ship(customer: _Customer, chance: random.Random) -> Fact | None:
    if chance.random() > 0.7:  # noqa: PLR2004
        return None
    done = customer.paid.pop(0)
    customer.shipped.append(done)
    return "Order shipped", {"order": done[0], "parcel": f"P{chance.randrange(10**9):09}"}, []


def _settle(customer: _Customer, chance: random.Random) -> Fact | None:
    order, cents, product = customer.placed[0]
    luck = chance.random()
    if luck < 0.05:  # noqa: PLR2004
        return "Payment failed", {"order": order, "cents": cents}, []
    if luck < 0.10:  # noqa: PLR2004
        customer.placed.pop(0)
        return "Order cancelled", {"order": order}, []
    customer.placed.pop(0)
    customer.paid.append((order, cents, product))
    return PAYMENT, {"order": order, "cents": cents}, []


def _shop(customer: _Customer, chance: random.Random) -> Fact:
    luck = chance.random()
    if luck < 0.03:  # noqa: PLR2004
        return "Address changed", {"street": f"Mill Lane {chance.randrange(1, 200)}"}, []
    if customer.cart and luck < 0.12:  # noqa: PLR2004
        product, _ = customer.cart.pop()
        return "Item removed", {"product": product}, [f"product:{product}"]
    if customer.cart and luck < 0.50:  # noqa: PLR2004
        customer.orders += 1
        cents = sum(price for _, price in customer.cart)
        products = sorted({product for product, _ in customer.cart})
        customer.placed.append((customer.orders, cents, products[0]))
        customer.cart.clear()
        return "Order placed", {"order": customer.orders, "cents": cents, "products": products}, []
    product = min(int(chance.expovariate(1 / 12)), PRODUCTS - 1)
    price = 250 + 175 * product
    customer.cart.append((product, price))
    return "Item added", {"product": product, "cents": price}, [f"product:{product}"]
