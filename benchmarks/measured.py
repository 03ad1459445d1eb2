"""What one measurement found, and how measurements of several contenders are interleaved.

Only ratios between contenders measured side by side mean anything on a shared machine, so a round measures every
contender once, in turn (A B F, A B F, …), and a ratio is taken inside its round. A figure whose correctness check
failed is void, whatever it says.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Measured:
    """One contender in one round; times in seconds.

    ``work`` are the statements that events cause, by kind, ``clock`` those that time causes. ``problem`` voids it all.
    """

    events: int
    seconds: float
    cpu_seconds: float
    work: Counter[str] = field(default_factory=Counter)
    clock: Counter[str] = field(default_factory=Counter)
    details: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None

    @property
    def rate(self) -> float:
        """Events per second."""
        return self.events / self.seconds if self.seconds else 0.0

    @property
    def cpu_microseconds(self) -> float:
        """Processor time of the client per event, in microseconds."""
        return self.cpu_seconds / self.events * 1e6 if self.events else 0.0

    def per_thousand(self, kind: str | None = None) -> float:
        """Statements per 1,000 events, of one kind or all that work causes."""
        count = self.work.total() if kind is None else self.work[kind]
        return count * 1000 / self.events if self.events else 0.0

    def clock_per_second(self, kind: str | None = None) -> float:
        """Clock-driven statements per second."""
        count = self.clock.total() if kind is None else self.clock[kind]
        return count / self.seconds if self.seconds else 0.0


Rounds = dict[str, list[Measured]]


def interleaved(contenders: dict[str, Callable[[], Measured]], rounds: int) -> Rounds:
    """Measure every contender once per round, in turn."""
    found: Rounds = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, measure in contenders.items():
            found[name].append(measure())
    return found


def problems(rounds: Rounds) -> list[str]:
    """Return what voids figures, each once."""
    return sorted({f"{name}: {m.problem}" for name, measured in rounds.items() for m in measured if m.problem})


def median_of(measured: Sequence[Measured], value: Callable[[Measured], float]) -> float:
    """Return the median of a value over the rounds that count; 0 when none does."""
    return statistics.median([value(m) for m in measured if m.problem is None] or [0.0])


def ratios(rounds: Rounds, name: str, other: str) -> list[float]:
    """Return, round by round, the rate of one contender divided by another's."""
    pairs = zip(rounds[name], rounds[other], strict=True)
    return [a.rate / b.rate for a, b in pairs if a.problem is None and b.problem is None and b.rate]
