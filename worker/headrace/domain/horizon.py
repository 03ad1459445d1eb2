"""The horizon: the line at or below which no event can still appear.

Design (docs/architecture.md, "Reading"): a transaction that draws positions holds a lock on the
sequence from before its first position to its end. Who was not a holder at the last look draws above
the sequence value read just before that look. So a reader that remembers, per holder, the value seen
before the holder appeared knows a floor under everything that the holder may still insert; the lowest
floor is the line. Nothing here reads a clock or a database; what is seen is handed in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.domain.ids import START, Position


@dataclass(frozen=True, slots=True)
class Holder:
    """A transaction that may still insert: its virtual transaction id; no pid when it is a prepared one."""

    vxid: str
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class HorizonProbe:
    """One look: the sequence value, read first, and the holders, listed after it.

    ``server`` names the server's run; it changes whenever the sequence may have gone back.
    ``problems`` says why this table cannot be read exactly; empty when it can.
    """

    sequence: Position
    holders: tuple[Holder, ...] = ()
    server: str = ""
    problems: tuple[str, ...] = ()


class Standing(StrEnum):
    """How a reader's position relates to the horizon."""

    CAUGHT_UP = "caught up"
    """No row at or below the line is unread, and nothing is held back."""
    BEHIND = "behind"
    """Rows at or below the line are unread."""
    HELD = "held"
    """Everything below the line is read; an open append keeps the rest back."""


@dataclass(frozen=True, slots=True)
class Horizon:
    """What one probe came to.

    ``line``: nothing can still appear at or below it. ``head``: the value of the sequence; a stored
    position above it means that the store went back. ``held_by`` is the holder that keeps the line
    below the head, once two probes have seen it; ``held_since`` is when the first one did, on the
    clock of whoever hands the time in. ``starts`` counts the starts up to this probe: when it has
    changed, the sequence may have been lower meanwhile than before. ``back_to`` is the head of the look
    that began this start because it saw a lower sequence than the look before it, ``back_at`` when that
    was; None when it began otherwise.
    """

    line: Position
    head: Position
    held_by: Holder | None = None
    held_since: float | None = None
    problems: tuple[str, ...] = ()
    starts: int = 0
    back_to: Position | None = None
    back_at: float | None = None

    @property
    def is_held(self) -> bool:
        """Whether something drawn may still appear above the line."""
        return self.line < self.head

    def standing(self, position: Position, last_row: Position) -> Standing:
        """Tell how a reader at ``position`` stands, ``last_row`` being the last row at or below the line."""
        if position < last_row:
            return Standing.BEHIND
        return Standing.HELD if self.is_held else Standing.CAUGHT_UP


@dataclass(slots=True)
class _Floor:
    """What one holder may still insert lies above ``floor``; ``unknown``: only because it was there at the start."""

    floor: Position
    first_seen: float
    probes: int = 1
    unknown: bool = False


@dataclass(slots=True)
class HorizonTracker:
    """Remembers floors from probe to probe. One per process and event table."""

    _floors: dict[Holder, _Floor] = field(default_factory=dict)
    _previous: HorizonProbe | None = None
    _line: Position = START
    _starts: int = 0
    _back: tuple[Position, float] | None = None

    def forget(self) -> None:
        """Drop everything: the connection was lost, so the server may have crashed meanwhile."""
        self._floors = {}
        self._previous = None
        self._line = START
        self._back = None

    def starts_with(self, probe: HorizonProbe) -> bool:
        """Tell whether this probe is a start: the first one, or the server was started again or went back."""
        previous = self._previous
        return previous is None or probe.server != previous.server or probe.sequence < previous.sequence

    def observe(self, probe: HorizonProbe, base: Position, now: float) -> Horizon:
        """Take the next probe and return the horizon.

        ``base`` is a position at or below which everything is known to be final (the position of a
        row that some reader has stored); it only matters where the probe is a start. ``now`` is any
        rising number of seconds.
        """
        if self.starts_with(probe):
            # Another server run may lack positions that nobody committed: only in the same one a lower value says it.
            went_back = self._previous is not None and probe.server == self._previous.server
            self.forget()
            self._starts += 1
            self._back = (probe.sequence, now) if went_back else None
        known = self._floors
        self._floors = {}
        for holder in probe.holders:
            if seen := self._known(known, holder):
                seen.probes += 1
                self._floors[holder] = seen
            else:
                self._floors[holder] = self._new_floor(holder, probe, base, now)
        self._previous = probe
        return self._horizon(probe)

    @property
    def wants_contiguous(self) -> bool:
        """Whether holders of unknown floor keep the line below the head: rows without a hole may raise it."""
        return (
            self._previous is not None
            and self._line < self._previous.sequence
            and any(entry.unknown and entry.floor <= self._line for entry in self._floors.values())
        )

    def extend(self, contiguous: Position) -> Horizon:
        """Raise the floors of unknown holders: the rows from the line to ``contiguous`` have no hole.

        Every position there has its row, so nobody can insert one, whatever a holder has drawn.
        """
        probe = self._previous
        if probe is None:
            raise RuntimeError("extend() needs a probe before it")
        for entry in self._floors.values():
            if entry.unknown:
                entry.floor = max(entry.floor, min(contiguous, probe.sequence))
        return self._horizon(probe)

    @staticmethod
    def _known(known: Mapping[Holder, _Floor], holder: Holder) -> _Floor | None:
        # A transaction that was prepared between two probes keeps its virtual id and loses its pid.
        if holder.pid is None and holder not in known:
            return next((entry for seen, entry in known.items() if seen.vxid == holder.vxid), None)
        return known.get(holder)

    def _new_floor(self, holder: Holder, probe: HorizonProbe, base: Position, now: float) -> _Floor:
        if self._previous is None:
            # A base above the sequence says that the store went back: then nothing is known to be final.
            return _Floor(base if base <= probe.sequence else START, now, unknown=True)
        if holder.pid is None:
            # Some versions rename a transaction when it is prepared: it may be one that was known, so it counts
            # as all that could still appear then.
            return _Floor(self._line, now)
        return _Floor(self._previous.sequence, now)

    def _horizon(self, probe: HorizonProbe) -> Horizon:
        self._line = min([probe.sequence, *(entry.floor for entry in self._floors.values())])
        held_by, held_since = None, None
        if self._line < probe.sequence:
            # A look at the sequence takes the same lock for an instant: only who is met twice is worth a name.
            holding = [
                (entry.first_seen, holder.vxid, holder)
                for holder, entry in self._floors.items()
                if entry.floor <= self._line and entry.probes > 1
            ]
            if holding:
                held_since, _, held_by = min(holding, key=lambda item: item[:2])
        back_to, back_at = self._back or (None, None)
        return Horizon(self._line, probe.sequence, held_by, held_since, probe.problems, self._starts, back_to, back_at)
