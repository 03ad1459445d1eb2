"""What an error means and what is done about it: classes, delays, the decision table."""

import asyncio
import errno
import socket
from datetime import timedelta
from typing import Any

import pytest

from headrace.domain import errors
from headrace.domain.errors import BadDeclaration, Busy, LeaseLost, TransactionAborted, Unavailable, Unrecoverable
from headrace.failures.backoff import LONGEST_DELAY, RetryPolicy
from headrace.failures.classify import FailureClass, classify
from headrace.failures.policy import Again, DropLease, Park, Retry, SlowDown, StopMain, decide

SECOND = timedelta(seconds=1)
EXACT = RetryPolicy(jitter=0)


class ShopError(Exception):
    """A user's own exception."""


class NeverAgain(Unrecoverable):
    """A user's own exception for what cannot be mended by trying."""


def caused(error: BaseException, cause: BaseException) -> BaseException:
    """Return `error` as if raised `from cause`."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ShopError("no such order"), FailureClass.RECOVERABLE),
        (KeyError("customer"), FailureClass.RECOVERABLE),
        (errors.HandlerTimeout("30 s"), FailureClass.RECOVERABLE),
        (errors.Conflict("version"), FailureClass.RECOVERABLE),
        (errors.BadInput("x"), FailureClass.RECOVERABLE),
        (RecursionError(), FailureClass.RECOVERABLE),
        (SystemExit(1), FailureClass.RECOVERABLE),
        (asyncio.CancelledError(), FailureClass.RECOVERABLE),
        (TimeoutError(), FailureClass.RECOVERABLE),
        (FileNotFoundError(errno.ENOENT, "gone"), FailureClass.RECOVERABLE),
        (ConnectionResetError(errno.ECONNRESET, "reset"), FailureClass.RECOVERABLE),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), FailureClass.RECOVERABLE),
        (OSError(), FailureClass.RECOVERABLE),
        (Unrecoverable("bad data"), FailureClass.UNRECOVERABLE),
        (NeverAgain("bad data"), FailureClass.UNRECOVERABLE),
        (Busy(3), FailureClass.BUSY),
        (TransactionAborted("deadlock"), FailureClass.ABORTED),
        (LeaseLost("taken over"), FailureClass.LEASE_LOST),
        (Unavailable("starting up"), FailureClass.SYSTEMIC),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), FailureClass.SYSTEMIC),
        (ConnectionRefusedError("made by a library"), FailureClass.SYSTEMIC),
        (OSError(errno.EHOSTUNREACH, "no route"), FailureClass.SYSTEMIC),
        (OSError(errno.ENETUNREACH, "no network"), FailureClass.SYSTEMIC),
    ],
    ids=repr,
)
def test_errors_have_a_class(error: BaseException, expected: FailureClass) -> None:
    """ERR-8: unrecoverable, recoverable, systemic, busy by the error alone; everybody's own errors are recoverable."""
    assert classify(error) is expected


def test_refusals_of_several_addresses_are_an_outage() -> None:
    """The event loop joins the refusals of all addresses into one text; any other number in it is no outage."""
    refused = "[Errno 111] Connect call failed ('::1', 1, 0, 0)"

    assert classify(OSError(f"Multiple exceptions: {refused}, {refused}")) is FailureClass.SYSTEMIC
    assert classify(OSError(f"Multiple exceptions: {refused}, [Errno 13] denied")) is FailureClass.RECOVERABLE
    assert classify(OSError(f"order says: {refused}")) is FailureClass.RECOVERABLE
    assert classify(OSError("Multiple exceptions: ")) is FailureClass.RECOVERABLE


async def test_asyncio_still_says_it_that_way() -> None:
    """A port of this machine that nobody listens on, under a name with one or two addresses, is an outage."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(OSError, match="Connect call failed") as caught:
            await asyncio.open_connection("localhost", port)

    assert classify(caught.value) is FailureClass.SYSTEMIC


def test_what_was_wrapped_counts() -> None:
    """An own exception raised from an outage, an abort or a lost lease is one; from anything else it is not."""
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    assert classify(caused(ShopError(), refused)) is FailureClass.SYSTEMIC
    assert classify(caused(ShopError(), caused(ValueError(), Unavailable()))) is FailureClass.SYSTEMIC
    assert classify(caused(ShopError(), TransactionAborted())) is FailureClass.ABORTED
    assert classify(caused(ShopError(), LeaseLost())) is FailureClass.LEASE_LOST
    assert classify(caused(ShopError(), KeyError("x"))) is FailureClass.RECOVERABLE
    assert classify(caused(ShopError(), Unrecoverable())) is FailureClass.RECOVERABLE
    assert classify(caused(ShopError(), Busy())) is FailureClass.RECOVERABLE
    assert classify(caused(Unrecoverable(), refused)) is FailureClass.UNRECOVERABLE
    assert classify(caused(OSError("all failed"), ExceptionGroup("", [refused, refused]))) is FailureClass.SYSTEMIC


def test_only_the_explicit_cause_counts() -> None:
    """A bug in the code that handles a refused connection is a bug, not an outage."""
    fallbacks: dict[str, Any] = {}

    def fall_back(hide: bool) -> None:
        try:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "cache")
        except ConnectionRefusedError:
            if hide:
                raise KeyError("fallback") from None
            fallbacks["fallback"]()

    for hide in (True, False):
        with pytest.raises(KeyError) as caught:
            fall_back(hide)

        assert classify(caught.value) is FailureClass.RECOVERABLE


def test_most_pressing_member_of_a_group_counts() -> None:
    """In a group, nested ones too: lost lease, unrecoverable, aborted, systemic, recoverable, busy, in this order."""
    members: list[Exception] = [Busy(), ShopError(), Unavailable(), TransactionAborted(), Unrecoverable(), LeaseLost()]
    expected = list(FailureClass)[::-1]
    for count in range(1, len(members) + 1):
        group = ExceptionGroup("outer", [ExceptionGroup("inner", members[:count])])

        assert classify(group) is expected[count - 1]


def test_endless_causes_end() -> None:
    """A cause that leads back to itself, and a very long chain, are classified all the same."""
    first, second = ShopError(), ShopError()
    first.__cause__, second.__cause__ = second, first
    deep: BaseException = Unavailable()
    for _ in range(10_000):
        deep = caused(ShopError(), deep)

    assert classify(first) is FailureClass.RECOVERABLE
    assert classify(deep) is FailureClass.RECOVERABLE


def test_hostile_os_errors_are_classified() -> None:
    """An OSError that carries no text or number of the usual kind raises nothing here."""

    class Odd(OSError):
        @property
        def errno(self) -> Any:
            return ["not", "hashable"]

        @errno.setter
        def errno(self, value: Any) -> None:
            raise AssertionError("never set")

    assert classify(Odd()) is FailureClass.RECOVERABLE
    assert classify(OSError(object())) is FailureClass.RECOVERABLE


def test_delays_double_from_five_seconds() -> None:
    """ERR-1: 5, 10, 20, 40, 80 s after the failures, then no retry of this kind."""
    delays = [EXACT.next_delay(attempt, 0.7) for attempt in range(1, 8)]

    assert delays == [5 * SECOND, 10 * SECOND, 20 * SECOND, 40 * SECOND, 80 * SECOND, None, None]


def test_parked_keys_are_tried_for_about_a_day() -> None:
    """Design 6: parked keys are tried again with a doubling delay from minutes, then wait for a person."""
    delays = [EXACT.parked_delay(parking, 0) for parking in range(1, 10)]

    assert delays[:4] == [300 * SECOND, 600 * SECOND, 1200 * SECOND, 2400 * SECOND]
    assert delays[8] is None
    assert timedelta(hours=20) < sum((delay for delay in delays if delay), timedelta()) < timedelta(hours=24)


def test_jitter_only_lengthens() -> None:
    """ERR-1: never earlier than promised; at most by the jitter later; by as much as chance says."""
    policy = RetryPolicy(jitter=0.1)

    assert policy.next_delay(1, 0.0) == 5 * SECOND
    assert policy.next_delay(1, 0.5) == 5.25 * SECOND
    assert policy.next_delay(1, 1.0) == 5.5 * SECOND


def test_delays_do_not_overflow() -> None:
    """However steep and long the policy, a delay is a day at most."""
    policy = RetryPolicy(attempts=1000, factor=1000, jitter=0)

    assert policy.next_delay(1000, 1.0) == LONGEST_DELAY


def test_failures_are_counted_from_one() -> None:
    """A count of zero is a bug of the caller and is said."""
    with pytest.raises(ValueError, match="from 1"):
        EXACT.next_delay(0, 0)


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": -1},
        {"attempts": 1.5},
        {"attempts": True},
        {"attempts": 1001},
        {"base": 5},
        {"base": timedelta(0)},
        {"base": timedelta(days=2)},
        {"factor": 0.5},
        {"factor": float("nan")},
        {"factor": "2"},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"parked_base": None},
        {"parked_attempts": -1},
    ],
)
def test_policies_are_checked(options: dict[str, Any]) -> None:
    """A policy that makes no sense is refused where it is declared, by the name of the value."""
    with pytest.raises(BadDeclaration, match=next(iter(options))):
        RetryPolicy(**options)


def test_recoverable_is_retried_then_parked_then_left_to_a_person() -> None:
    """ERR-8: the budget first, then parking with automatic retries, then a person, by one running count."""
    policy = RetryPolicy(attempts=2, parked_attempts=2, jitter=0)
    decisions = [decide(FailureClass.RECOVERABLE, attempts, policy, 0.3) for attempts in range(1, 7)]

    assert decisions == [
        Retry(5 * SECOND),
        Retry(10 * SECOND),
        Park(300 * SECOND),
        Park(600 * SECOND),
        Park(None),
        Park(None),
    ]


def test_unrecoverable_parks_at_once() -> None:
    """ERR-8: declared-unrecoverable is called exactly once; only a person helps."""
    assert decide(FailureClass.UNRECOVERABLE, 1, EXACT, 0) == Park(None)


def test_no_retries_means_parked_at_the_first_failure() -> None:
    """ERR-3: a policy without attempts parks at once, and without parked ones waits for a person."""
    assert decide(FailureClass.RECOVERABLE, 1, RetryPolicy(attempts=0, jitter=0), 0) == Park(300 * SECOND)
    assert decide(FailureClass.RECOVERABLE, 1, RetryPolicy(attempts=0, parked_attempts=0), 0) == Park(None)


def test_outage_charges_no_key() -> None:
    """ERR-8: systemic stops the main, however often; no budget is used and nobody is parked."""
    assert {decide(FailureClass.SYSTEMIC, attempts, EXACT, 0) for attempts in (1, 6, 100)} == {StopMain()}


def test_aborted_and_lost_are_no_failures() -> None:
    """An aborted transaction is done again at once; after a lost lease nothing is written."""
    assert decide(FailureClass.ABORTED, 99, EXACT, 0) == Again()
    assert decide(FailureClass.LEASE_LOST, 1, EXACT, 0) == DropLease()


def test_busy_slows_down_and_never_parks() -> None:
    """ERR-12: busy again and again: no park, delays grow with jitter, never below what was asked."""
    asked = 3 * SECOND
    delays = [decide(FailureClass.BUSY, times, RetryPolicy(jitter=0.1), 0.5, asked) for times in (1, 2, 3, 50)]

    assert delays == [
        SlowDown(asked * 1.05),
        SlowDown(2 * asked * 1.05),
        SlowDown(4 * asked * 1.05),
        SlowDown(timedelta(minutes=5) * 1.05),
    ]
    assert decide(FailureClass.BUSY, 9, EXACT, 0, timedelta(hours=1)) == SlowDown(timedelta(hours=1))


def test_busy_without_a_delay_does_not_spin() -> None:
    """CLM-9: a handler that asks for nothing, or for a time in the past, is not called in a hot loop."""
    assert decide(FailureClass.BUSY, 1, EXACT, 0) == SlowDown(SECOND)
    for asked in (timedelta(0), timedelta(seconds=-5)):
        assert decide(FailureClass.BUSY, 1, EXACT, 0, asked) == SlowDown(timedelta(milliseconds=100))
