"""Binding as a whole: declared classes become handlers, and everything is read once, when they are bound."""

import inspect
from typing import Any

import pytest

from headrace.domain.event import EventFilter
from headrace.domain.subscription import Kind, StartFrom
from headrace.partitioning.keys import Stream
from headrace.ports import subscribers as ports
from headrace.subscribers import annotations
from headrace.subscribers.app import App
from headrace.subscribers.binding import bind
from support.loans import FakeConnection, LoansByReader, LoanTotals, Reminders, an_event, call, values


def test_an_application_works_end_to_end() -> None:
    """The contract of the API page: declared classes become handlers that get what they name by type."""
    app = App(LoansByReader(), LoanTotals(), Reminders(), name="library")
    loans, totals, reminders = app.subscribers.values()
    db = FakeConnection()

    call(loans.setup_hook, values(connection=db))
    for handler in loans.handlers_for("BookLent"):
        call(handler, values(connection=db))
    call(totals.batch_for("BookLent"), values(events=[an_event(), an_event()], connection=db))
    call(loans.teardown_hook, values(connection=db))
    failure = ValueError("no address")
    call(reminders.on_failed_hook, values(error=failure))

    assert db.executed == [
        ("create table loans_by_reader ()",),
        ("insert", "book-1", 14),
        ("upsert", 28),
        ("drop table loans_by_reader",),
    ]
    assert reminders.subscriber.given_up == [(7, failure)]  # type: ignore[attr-defined]
    assert call(reminders.handlers_for("BookLent")[0], values()) == str(an_event().execution_id)


def test_bound_subscriber_says_what_was_declared() -> None:
    """The engine reads everything from the bound form, through its port; the store from its declaration."""
    app = App(LoansByReader(), LoanTotals(), Reminders(), name="library")
    through_the_port: ports.Subscribers = app.subscribers
    assert set(through_the_port) == {"loans_by_reader", "loan_totals", "reminders"}
    loans, totals, reminders = app.subscribers.values()

    assert (loans.name, loans.kind, loans.group, loans.start) == (
        "loans_by_reader",
        Kind.PROJECTOR,
        "projector",
        StartFrom.BEGINNING,
    )
    assert loans.wanted == EventFilter(types=("BookLent", "BookLost", "BookReturned"))
    assert (loans.partitioner, loans.remove_idle_after, loans.limit) == (Stream(), 3600.0, 1000)
    assert (reminders.concurrency, reminders.retry.attempts, reminders.timeout) == (3, 2, None)
    assert (loans.has_batch, totals.has_batch, loans.partitions_per_claim) == (False, True, None)
    declaration = reminders.declaration("library")
    assert (declaration.app, declaration.partitioned, declaration.partitioner) == (
        "library",
        True,
        "Bucket(Stream(), 64)",
    )
    assert (declaration.replayable, loans.declaration("library").replayable) == (False, True)
    assert declaration.start is StartFrom.NOW


def test_sync_and_async_handlers_are_told_apart() -> None:
    """`def` and `async def` both work; the engine is told which is which, and who needs what."""
    loans = bind(LoansByReader())
    (lent,), (gone,) = loans.handlers_for("BookLent"), loans.handlers_for("BookLost")

    assert (lent.is_async, lent.needs_connection, lent.needs_context) == (True, True, False)
    assert (gone.is_async, gone.needs_connection) == (False, True)
    assert lent.name == "LoansByReader.lent"


def test_annotations_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """ARG-2: 10,000 events after binding, no annotation or signature is read any more."""
    handler = bind(LoansByReader()).handlers_for("BookLost")[0]

    def forbidden(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("inspected at call time")

    monkeypatch.setattr(inspect, "signature", forbidden)
    monkeypatch.setattr(annotations, "read_annotation", forbidden)
    given = values(event=an_event("BookLost"))
    for _ in range(10_000):
        handler.call(given)
