"""The line below which nothing can still appear: rules one by one, then against a simulated server."""

import random
from dataclasses import dataclass, field

import pytest

from headrace.domain.horizon import Holder, Horizon, HorizonProbe, HorizonTracker, Standing
from headrace.domain.ids import START, Position

ANN, BEN, EVA = Holder("3/1", 31), Holder("4/1", 41), Holder("5/1", 51)


def probe(sequence: int, *holders: Holder, server: str = "first") -> HorizonProbe:
    """Return one look."""
    return HorizonProbe(Position(sequence), holders, server)


def observe(tracker: HorizonTracker, *looks: HorizonProbe, base: int = 0) -> Horizon:
    """Feed looks a second apart and return the last horizon."""
    horizon = None
    for second, look in enumerate(looks):
        horizon = tracker.observe(look, Position(base), float(second))
    assert horizon is not None
    return horizon


def test_nobody_open_means_the_line_is_the_sequence() -> None:
    """Without a holder every drawn position is final."""
    horizon = observe(HorizonTracker(), probe(7))
    assert (horizon.line, horizon.head, horizon.is_held) == (7, 7, False)


def test_new_holder_gets_the_sequence_seen_before_it() -> None:
    """A holder absent from the last list draws above the value read before that list, however far it is now."""
    assert observe(HorizonTracker(), probe(10), probe(50, ANN)).line == 10


def test_known_holder_keeps_its_floor() -> None:
    """A floor never rises while its holder lives: it may insert a position that it drew long ago."""
    assert observe(HorizonTracker(), probe(10), probe(20, ANN), probe(90, ANN), probe(95, ANN)).line == 10


def test_ended_holder_frees_the_line() -> None:
    """When a holder is gone its positions are rows or holes for ever."""
    assert observe(HorizonTracker(), probe(10), probe(20, ANN), probe(30)).line == 30


def test_lowest_floor_is_the_line() -> None:
    """Of several holders the oldest counts, and after it the next one."""
    tracker = HorizonTracker()
    assert observe(tracker, probe(10), probe(20, ANN), probe(30, ANN, BEN)).line == 10
    assert tracker.observe(probe(40, BEN), START, 9.0).line == 20


def test_prepared_transaction_keeps_its_floor_under_its_own_name() -> None:
    """PREPARE TRANSACTION takes the pid away, not what was drawn."""
    prepared = Holder(ANN.vxid)
    assert observe(HorizonTracker(), probe(10), probe(20, ANN), probe(30, prepared), probe(40, prepared)).line == 10


def test_unknown_prepared_transaction_gets_the_line_before_it() -> None:
    """A prepared transaction may have been renamed: it could be any of those that were open, so the old line counts."""
    renamed = Holder("-1/727")
    horizon = observe(HorizonTracker(), probe(10), probe(20, ANN), probe(30, ANN), probe(40, renamed))
    assert horizon.line == 10


def test_holder_met_at_the_start_counts_from_the_base() -> None:
    """What was drawn before the first look is unknown: only what some reader has stored is final."""
    assert observe(HorizonTracker(), probe(100, ANN), base=60).line == 60


def test_start_without_holders_needs_no_base() -> None:
    """Nobody open at the first look: everything drawn is final at once."""
    assert observe(HorizonTracker(), probe(100), base=0).line == 100


def test_base_above_the_sequence_is_not_believed() -> None:
    """A stored position above the sequence says that the store went back: then nothing is known to be final."""
    horizon = observe(HorizonTracker(), probe(50, ANN), base=80)
    assert (horizon.line, horizon.head) == (START, 50)


def test_rows_without_a_hole_are_final_at_a_start() -> None:
    """A position that has its row cannot be inserted again, so rows that follow the base raise the line."""
    tracker = HorizonTracker()
    observe(tracker, probe(100, ANN), base=60)
    assert tracker.wants_contiguous
    assert tracker.extend(Position(75)).line == 75
    assert tracker.observe(probe(120, ANN), START, 1.0).line == 75
    assert tracker.observe(probe(120), START, 2.0).line == 120
    assert not tracker.wants_contiguous


def test_rows_without_a_hole_never_raise_a_known_floor() -> None:
    """The rule is for holders of unknown floor; a known holder's floor stands."""
    tracker = HorizonTracker()
    observe(tracker, probe(10), probe(20, ANN))
    assert not tracker.wants_contiguous
    assert tracker.extend(Position(20)).line == 10


def test_another_server_run_starts_anew() -> None:
    """After a restart the sequence may have gone back under a remembered floor: everything remembered is dropped."""
    tracker = HorizonTracker()
    observe(tracker, probe(100), probe(110))
    assert tracker.observe(probe(115, ANN, server="second"), Position(90), 5.0).line == 90


def test_sequence_that_went_back_starts_anew() -> None:
    """A smaller sequence value shows the same as another server run."""
    tracker = HorizonTracker()
    observe(tracker, probe(100), probe(110))
    assert tracker.observe(probe(105, ANN), Position(90), 5.0).line == 90


def test_every_start_of_the_line_is_counted() -> None:
    """First look, another server run, a lower sequence, forgetting: only there can the sequence have been lower."""
    tracker = HorizonTracker()
    assert observe(tracker, probe(100), probe(100, ANN), probe(110)).starts == 1
    assert tracker.extend(Position(110)).starts == 1
    assert tracker.observe(probe(109), START, 3.0).starts == 2
    assert tracker.observe(probe(120, server="second"), START, 4.0).starts == 3
    tracker.forget()
    assert tracker.observe(probe(120, server="second"), START, 5.0).starts == 4


def test_the_look_that_saw_the_sequence_go_back_is_remembered() -> None:
    """However far it has grown again, the start that a lower sequence began says so; another server run, or a gap in
    looking, does not show that anything went back.
    """
    tracker = HorizonTracker()
    assert observe(tracker, probe(100), probe(110)).back_to is None
    assert tracker.observe(probe(70), START, 3.0).back_to == 70
    grown = tracker.observe(probe(200, ANN), START, 4.0)
    assert (grown.back_to, grown.back_at) == (70, 3.0)
    assert tracker.extend(Position(200)).back_to == 70
    assert tracker.observe(probe(60), START, 5.0).back_to == 60
    assert tracker.observe(probe(50, server="second"), START, 6.0).back_to is None
    tracker.forget()
    again = tracker.observe(probe(40, server="second"), START, 7.0)
    assert (again.back_to, again.back_at) == (None, None)


def test_holder_is_named_from_the_second_look_on() -> None:
    """Other processes' looks at the sequence take the same lock for an instant: nobody is named for that."""
    tracker = HorizonTracker()
    first = observe(tracker, probe(10), probe(20, ANN))
    assert (first.is_held, first.held_by) == (True, None)
    second = tracker.observe(probe(20, ANN), START, 7.5)
    assert (second.held_by, second.held_since) == (ANN, 1.0)


def test_lookers_of_other_processes_never_stall_the_line() -> None:
    """A new looker at every look still lets the line follow the sequence, one look behind at most."""
    tracker = HorizonTracker()
    observe(tracker, probe(10))
    for look in range(1, 50):
        looker = Holder(f"9/{look}", 91)
        assert tracker.observe(probe(10 + look, looker), START, look).line == 10 + look - 1
    assert tracker.observe(probe(59, Holder("9/99", 91)), START, 99.0).line == 59


def test_the_holder_of_the_lowest_floor_is_the_one_named() -> None:
    """Whom to look at first is who keeps the line where it is."""
    tracker = HorizonTracker()
    observe(tracker, probe(10), probe(20, ANN), probe(30, ANN, BEN), probe(40, ANN, BEN))
    assert tracker.observe(probe(50, BEN, EVA), START, 9.0).held_by == BEN


def test_caught_up_behind_and_held_are_three_things() -> None:
    """A reader at the last row is caught up, or held when an append is open; below it, it is behind."""
    free, held = Horizon(Position(10), Position(10)), Horizon(Position(10), Position(12))
    assert free.standing(Position(9), Position(9)) is Standing.CAUGHT_UP
    assert held.standing(Position(9), Position(9)) is Standing.HELD
    assert held.standing(Position(8), Position(9)) is Standing.BEHIND


# ------------------------------------------------------------------------------------------ against a simulated server


@dataclass
class Transaction:
    """An append: a holder from before its first position until its end."""

    holder: Holder
    drawn: list[int] = field(default_factory=list)


@dataclass
class SimulatedServer:
    """A sequence, open appends and committed rows, moved on by chance one step at a time."""

    chance: random.Random
    sequence: int = 0
    durable: int = 0
    runs: int = 0
    transactions: int = 0
    open: list[Transaction] = field(default_factory=list)
    rows: set[int] = field(default_factory=set)

    def step(self) -> None:
        """Do one thing that some client or the server does."""
        match self.chance.choices(["begin", "draw", "commit", "abort", "prepare", "crash"], [3, 6, 3, 2, 1, 0.05])[0]:
            case "begin" if len(self.open) < 6:
                self.transactions += 1
                self.open.append(Transaction(Holder(f"3/{self.transactions}", self.transactions)))
            case "draw" if self.open:
                self.sequence += 1
                self.chance.choice(self.open).drawn.append(self.sequence)
            case "commit" if self.open:
                self._end(commit=True)
            case "abort" if self.open:
                self._end(commit=False)
            case "prepare" if self.open:
                self._prepare(self.chance.choice(self.open))
            case "crash":
                self._crash()

    def look(self) -> HorizonProbe:
        """Read the sequence, then each holder at a moment of its own, others going on in between."""
        sequence, server = self.sequence, str(self.runs)
        seen: list[Holder] = []
        looked_at: set[int] = set()
        while waiting := [t for t in self.open if id(t) not in looked_at]:
            seen.append(waiting[0].holder)
            looked_at.add(id(waiting[0]))
            if self.chance.random() < 0.5 and str(self.runs) == server:
                before = self.open[:]
                self.step()
                # Whoever came after the list was begun may or may not be on it.
                looked_at |= {id(t) for t in self.open if t not in before and self.chance.random() < 0.5}
        return HorizonProbe(Position(sequence), tuple(seen), server)

    def final_rows(self, line: int) -> list[int]:
        """Return the rows at or below a line, the last of which a reader would store."""
        return sorted(row for row in self.rows if row <= line)

    def contiguous_from(self, base: int) -> Position:
        """Return how far rows follow without a hole."""
        while base + 1 in self.rows:
            base += 1
        return Position(base)

    def _end(self, commit: bool) -> None:
        transaction = self.open.pop(self.chance.randrange(len(self.open)))
        if commit and transaction.drawn:
            self.rows |= set(transaction.drawn)
            self.durable = max(self.durable, *transaction.drawn)

    def _prepare(self, transaction: Transaction) -> None:
        renamed = self.chance.random() < 0.5
        transaction.holder = Holder(f"-1/{self.transactions}x" if renamed else transaction.holder.vxid)
        self.durable = max([self.durable, *transaction.drawn])

    def _crash(self) -> None:
        self.runs += 1
        self.sequence = self.chance.randint(self.durable, self.sequence)
        self.open = [transaction for transaction in self.open if transaction.holder.pid is None]


@pytest.mark.parametrize("seed", range(300))
def test_nothing_appears_at_or_below_the_line(seed: int) -> None:
    """Whatever appends, prepared ones and crashes do between looks, no open append owns a position at the line."""
    chance = random.Random(seed)
    server, tracker, stored, lines = SimulatedServer(chance), HorizonTracker(), 0, 0
    for _ in range(chance.randrange(20)):
        server.step()
    for number in range(120):
        for _ in range(chance.choice([0, 1, 1, 2, 5, 20])):
            server.step()
        look = server.look()
        if chance.random() < 0.02:
            tracker.forget()
        horizon = tracker.observe(look, Position(stored), number)
        if tracker.wants_contiguous:
            horizon = tracker.extend(server.contiguous_from(horizon.line))
        if look.server != str(server.runs):
            continue  # the server crashed during this look: a real one would have lost its connection
        still_open = [position for transaction in server.open for position in transaction.drawn]
        assert all(position > horizon.line for position in still_open), (seed, number, horizon)
        assert horizon.line <= horizon.head
        stored = max([stored, *server.final_rows(horizon.line)])
        lines += horizon.line > 0
    assert lines > 0


@pytest.mark.parametrize("seed", range(20))
def test_the_line_reaches_the_sequence_when_appends_end(seed: int) -> None:
    """Nothing is held for longer than a look after the last append has ended."""
    chance = random.Random(seed)
    server, tracker = SimulatedServer(chance), HorizonTracker()
    for number in range(30):
        server.step()
        tracker.observe(server.look(), START, number)
    server.open.clear()
    assert tracker.observe(server.look(), START, 31.0).line == server.sequence
