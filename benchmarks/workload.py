"""The events: seeded, so that every run and every contender meets the same log."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import orjson

SEED = 5
EVENT_BYTES = 200
EVENT_TYPE = "Booked"
COLUMNS = ("stream", "version", "type", "data")

Row = tuple[str, int, str, str]


@dataclass(frozen=True, slots=True)
class Log:
    """So many events over so many keys: drawn uniformly, or dealt out so that each key gets its even share."""

    events: int
    keys: int
    even: bool = False

    def rows(self, versions: Counter[str]) -> Iterator[Row]:
        """Yield the events in order, as columns of the event table; goes on from the versions given."""
        draw = random.Random(SEED + versions.total())
        for key in self._keys(draw):
            stream = f"account-{key:06d}"
            versions[stream] += 1
            yield stream, versions[stream], EVENT_TYPE, data_of(draw.randrange(1, 10_000))

    def _keys(self, draw: random.Random) -> Iterable[int]:
        if not self.even:
            return (draw.randrange(self.keys) for _ in range(self.events))
        dealt = [number % self.keys for number in range(self.events)]
        draw.shuffle(dealt)
        return dealt


def data_of(amount: int) -> str:
    """Return JSON text of a fixed length with a number in it."""
    text = orjson.dumps({"amount": amount, "currency": "EUR", "note": ""}).decode()
    return text[:-2] + "x" * (EVENT_BYTES - len(text)) + text[-2:]
