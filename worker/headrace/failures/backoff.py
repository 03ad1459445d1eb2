"""From the number of attempts to the delay before the next one.

Exponential with jitter; chance is handed in as a number from 0 to 1, so that a decision can be
repeated. Jitter only ever lengthens a delay: no key is tried earlier than was promised.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from headrace.domain.errors import BadDeclaration

MOST_ATTEMPTS: Final = 1000
LONGEST_DELAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a failing key is tried again, and when it is left to a person.

    A failed event is tried again ``attempts`` times at the same position: after ``base``, then each
    time ``factor`` times as long (by default 5, 10, 20, 40 and 80 s). Then its key is parked and
    tried ``parked_attempts`` times more, beginning at ``parked_base`` (by default 5 minutes, doubling
    eight times: about a day). After that it waits for a person. Every delay is lengthened by a
    random part of up to ``jitter`` and is at most a day before that. ``attempts=0`` parks at the
    first failure, ``parked_attempts=0`` makes a parked key wait for a person at once.
    """

    attempts: int = 5
    base: timedelta = timedelta(seconds=5)
    factor: float = 2.0
    jitter: float = 0.1
    parked_base: timedelta = timedelta(minutes=5)
    parked_attempts: int = 8

    def __post_init__(self) -> None:
        for name in ("attempts", "parked_attempts"):
            value = getattr(self, name)
            _require(type(value) is int and 0 <= value <= MOST_ATTEMPTS, name, value, f"a number 0 to {MOST_ATTEMPTS}")
        for name in ("base", "parked_base"):
            value = getattr(self, name)
            fits = isinstance(value, timedelta) and timedelta(0) < value <= LONGEST_DELAY
            _require(fits, name, value, "a timedelta above zero, a day at most")
        _require(_is_number(self.factor) and 1 <= self.factor <= MOST_ATTEMPTS, "factor", self.factor, "1 to 1000")
        _require(_is_number(self.jitter) and 0 <= self.jitter <= 1, "jitter", self.jitter, "0 to 1")

    def next_delay(self, attempt: int, unit: float) -> timedelta | None:
        """Return the delay after failure number ``attempt`` (1 is the first); None when the budget is spent.

        ``unit`` is chance: 0 gives the shortest delay, 1 the longest.
        """
        return self._delay(self.base, attempt, unit) if attempt <= self.attempts else None

    def parked_delay(self, parking: int, unit: float) -> timedelta | None:
        """Return the delay after the key was parked for the ``parking``-th time in a row (1 is the first).

        None when a person has to decide; ``unit`` as for ``next_delay``.
        """
        return self._delay(self.parked_base, parking, unit) if parking <= self.parked_attempts else None

    def busy_delay(self, asked: timedelta, times: int, unit: float) -> timedelta:
        """Return the delay for a key that was busy ``times`` times in a row and asks for ``asked``.

        It grows like any other, up to ``parked_base``, but is never shorter than what was asked for.
        """
        grown = min(self._delay(asked, times, 0.0), self.parked_base)
        return self._jittered(max(grown, asked), unit)

    def _delay(self, base: timedelta, number: int, unit: float) -> timedelta:
        if number < 1:
            raise ValueError(f"failures are counted from 1, not {number}")
        try:
            seconds = base.total_seconds() * self.factor ** (number - 1)
        except OverflowError:
            seconds = LONGEST_DELAY.total_seconds()
        return self._jittered(timedelta(seconds=min(seconds, LONGEST_DELAY.total_seconds())), unit)

    def _jittered(self, delay: timedelta, unit: float) -> timedelta:
        return delay * (1 + self.jitter * unit)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _require(fits: bool, name: str, value: object, wanted: str) -> None:
    if not fits:
        raise BadDeclaration(f"RetryPolicy({name}={value!r}): {name} must be {wanted}")
