"""From an exception to the kind of failure it is.

Only what is certain from the exception alone is said here. That several keys fail in a row, which
is an outage too, is for the breaker to see. Whoever calls this has already let its own
cancellation pass: everything that arrives here came out of a handler or a statement.
"""

import errno
import re
from enum import StrEnum

from headrace.domain.errors import Busy, LeaseLost, TransactionAborted, Unavailable, Unrecoverable


class FailureClass(StrEnum):
    """What to do next, the most pressing first: in an exception group the first one present counts.

    LEASE_LOST: nothing of this lease can be written any more. UNRECOVERABLE: the handler says that
    trying again cannot help. ABORTED: the transaction was given up for no fault of its content; the
    same again, never counted. SYSTEMIC: the database or a target is gone, no key's fault.
    RECOVERABLE: any other error; tried again within a budget. BUSY: the handler asks for a delay.
    """

    LEASE_LOST = "lease lost"
    UNRECOVERABLE = "unrecoverable"
    ABORTED = "aborted"
    SYSTEMIC = "systemic"
    RECOVERABLE = "recoverable"
    BUSY = "busy"


_BY_TYPE: tuple[tuple[type[BaseException], FailureClass], ...] = (
    (LeaseLost, FailureClass.LEASE_LOST),
    (Unrecoverable, FailureClass.UNRECOVERABLE),
    (TransactionAborted, FailureClass.ABORTED),
    (Unavailable, FailureClass.SYSTEMIC),
    (ConnectionRefusedError, FailureClass.SYSTEMIC),
    (Busy, FailureClass.BUSY),
)
_URGENCY = list(FailureClass)
_SEEN_THROUGH = {FailureClass.LEASE_LOST, FailureClass.ABORTED, FailureClass.SYSTEMIC}
_UNREACHABLE = {errno.ECONNREFUSED, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH}
# asyncio joins the errors of several addresses of one host into the text of an OSError without a number.
_JOINED = "Multiple exceptions: "
_NUMBER = re.compile(r"\[Errno (-?\d+)\]")
_DEEPEST = 50


def classify(error: BaseException) -> FailureClass:
    """Return the class of ``error``; RECOVERABLE for everything that is not known to be something else.

    A user's exception that was raised ``from`` a lost lease, an aborted transaction or an outage
    counts as that: the handler's wrapping does not change what has happened. Only the explicit
    cause is looked at, not what happened to be handled when the error was raised.
    """
    return _classify(error, 0)


def _classify(error: BaseException, depth: int) -> FailureClass:
    if depth > _DEEPEST:
        return FailureClass.RECOVERABLE
    if isinstance(error, BaseExceptionGroup):
        return min((_classify(member, depth + 1) for member in error.exceptions), key=_URGENCY.index)
    own = _own_class(error)
    if own is FailureClass.RECOVERABLE and error.__cause__ is not None:
        beneath = _classify(error.__cause__, depth + 1)
        return beneath if beneath in _SEEN_THROUGH else own
    return own


def _own_class(error: BaseException) -> FailureClass:
    for kind, failure_class in _BY_TYPE:
        if isinstance(error, kind):
            return failure_class
    if isinstance(error, OSError) and _is_unreachable(error):
        return FailureClass.SYSTEMIC
    return FailureClass.RECOVERABLE


def _is_unreachable(error: OSError) -> bool:
    number = getattr(error, "errno", None)  # whatever a subclass makes of it
    if number is not None:
        return isinstance(number, int) and number in _UNREACHABLE
    text = error.args[0] if error.args else None
    if not isinstance(text, str) or not text.startswith(_JOINED):
        return False
    numbers = [int(number) for number in _NUMBER.findall(text)]
    return bool(numbers) and _UNREACHABLE.issuperset(numbers)
