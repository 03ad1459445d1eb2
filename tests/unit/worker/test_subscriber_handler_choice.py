"""Which handlers an event gets, in which order; inheritance; and which marks exclude each other."""

from typing import Any, Generic, TypeVar

import pytest

from headrace.domain.errors import BadDeclaration
from headrace.domain.event import Event, EventFilter
from headrace.subscribers.binding import bind
from headrace.subscribers.declare import batch, on, on_failed, projector, setup, teardown
from support.loans import BookLent, LoanTotals, bound, call, list_taking, names, recording, values


def test_typed_handlers_run_before_those_of_every_event() -> None:
    """DEC-3: two typed handlers and a wildcard, whatever their order in the class: typed first, each once."""
    loans = bound(
        any_event=recording(on(), "any"),
        first=recording(on("BookLent"), "first"),
        other=recording(on("Other"), "other"),
        second=recording(on("Third", "BookLent"), "second"),
        last=recording(on(), "last"),
    )

    assert names(loans.handlers_for("BookLent")) == ["first", "second", "any_event", "last"]
    assert names(loans.handlers_for("Unheard")) == ["any_event", "last"]
    assert loans.wanted.types is None
    assert loans.batch_for("BookLent") is None


def test_handler_of_a_type_and_of_every_event_is_called_once() -> None:
    """DEC-3: one method that is marked for a type and for all is called once, among the typed ones."""
    loans = bound(both=on("BookLent")(recording(on(), "both")), typed=recording(on("BookLent"), "typed"))

    assert names(loans.handlers_for("BookLent")) == ["both", "typed"]
    assert names(loans.handlers_for("Other")) == ["both"]


def test_unwanted_types_have_no_handler() -> None:
    """Without a wildcard, an event of another type gets nothing, and is not wanted."""
    loans = bound(lent=recording(on("BookLent"), "lent"))

    assert loans.handlers_for("Other") == ()
    assert loans.batch_for("Other") is None
    assert loans.wanted == EventFilter(types=("BookLent",))


def test_streams_and_tags_narrow_what_is_wanted() -> None:
    """The filters of the decorator get into the filter of the subscription."""
    cls = projector("loans", streams=["b", "a"], tags="x:1")(type("Loans", (), {"lent": recording(on("A"), "lent")}))

    assert bind(cls()).wanted == EventFilter(types=("A",), streams=("a", "b"), tags=("x:1",))


def test_batches_are_found_by_type_or_for_every_event() -> None:
    """`@batch()` without a type takes every event; per_key is told to the engine."""
    by_type = bound(fold=list_taking(batch("A", "B")))
    for_all = bound(fold=list_taking(batch(per_key=True)))

    assert by_type.batch_for("B") is by_type.batch_for("A") is not None
    assert by_type.batch_for("C") is None
    assert by_type.handlers_for("A") == ()
    found = for_all.batch_for("Whatever")
    assert found is not None
    assert (found.per_key, for_all.wanted.types, by_type.wanted.types) == (True, None, ("A", "B"))


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (on("A"), batch("A", "B"), "A"),
        (on(), batch("A"), "A"),
        (on("A"), batch(), "A"),
        (on(), batch(), "every event"),
        (batch("A"), batch("A"), "A"),
        (batch("A"), batch(), "A"),
        (batch(), batch(), "every event"),
    ],
)
def test_one_type_has_on_handlers_or_one_batch(one: Any, other: Any, shared: str) -> None:
    """`@on` and `@batch`, or two `@batch`, for one type in one class are refused, with both methods named."""
    with pytest.raises(BadDeclaration, match=rf"Loans: {shared} would go to \w+ \(@batch\) and to \w+"):
        bound(first=list_taking(one), second=list_taking(other))


def test_on_and_batch_for_different_types_are_fine() -> None:
    """Different types may be handled in different ways."""
    loans = bound(one=recording(on("A"), "one"), many=list_taking(batch("B")))

    assert names(loans.handlers_for("A")) == ["one"]
    assert loans.batch_for("B") is not None
    assert loans.wanted.types == ("A", "B")


def test_roles_do_not_mix() -> None:
    """One method has one role, a hook is there once, on_failed and batch exclude each other, something is handled."""
    with pytest.raises(BadDeclaration, match=r"Loans\.x is marked @batch and @on"):
        bound(x=on("A")(list_taking(batch("B"))))
    with pytest.raises(BadDeclaration, match=r"Loans\.x is marked @on and @setup"):
        bound(x=setup(recording(on("A"), "x")))
    for hook in (setup, teardown, on_failed):
        with pytest.raises(BadDeclaration, match=rf"Loans: x and y are marked @{hook.__name__}: one can be"):
            bound(x=hook(lambda _self: None), y=hook(lambda _self: None), z=recording(on(), "z"))
    with pytest.raises(BadDeclaration, match="@on_failed is asked about one event"):
        bound(x=on_failed(lambda _self: None), y=list_taking(batch()))
    with pytest.raises(BadDeclaration, match="Loans handles nothing"):
        bound(x=setup(lambda _self: None))


# ---- inheritance


class Base:
    """Handlers to inherit."""

    @on("A")
    def first(self, event: Event[Any]) -> str:
        """Handle A."""
        return "base first"

    @on("A")
    def second(self, event: Event[Any]) -> str:
        """Handle A."""
        return "base second"

    @on("A")
    def third(self, event: Event[Any]) -> str:
        """Handle A."""
        return "base third"


def test_inherited_handlers_come_first_and_overrides_keep_their_place() -> None:
    """An override, marked again or not, is called in place of what it overrides; None takes a handler away."""

    @projector("loans")
    class Loans(Base):
        @on("A")
        def own(self, event: Event[Any]) -> str:
            """Handle A."""
            return "own"

        def second(self, event: Event[Any]) -> str:
            """Override without a mark."""
            return "override"

        @on("B")
        def first(self, event: Event[Any]) -> str:
            """Override with another mark."""
            return "override"

        third = None  # type: ignore[assignment]

    loans = bind(Loans())

    assert names(loans.handlers_for("A")) == ["second", "own"]
    assert names(loans.handlers_for("B")) == ["first"]
    assert call(loans.handlers_for("A")[0], values()) == "override"
    assert loans.handlers_for("A")[0].name.endswith("Loans.second")


def test_subclass_of_a_subscriber_is_one() -> None:
    """A class that inherits from a declared one, as a test double does, needs no decorator of its own."""

    class Double(LoanTotals):
        pass

    assert bind(Double()).name == "loan_totals"


M = TypeVar("M")


def test_generic_base_gives_raw_or_marked_events() -> None:
    """An annotation with an open type variable says nothing, so the mark decides."""

    class Generics(Generic[M]):
        @on(BookLent)
        def lent(self, event: Event[M]) -> Any:
            """Return the data."""
            return event.data

    @projector("loans")
    class Loans(Generics[int]):
        pass

    assert call(bind(Loans()).handlers_for("BookLent")[0], values()) == BookLent(reader="ada", days=14)
