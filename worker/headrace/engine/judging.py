"""What to do with a key whose handler raised: from the exception to a written consequence."""

from dataclasses import dataclass
from typing import Any

from headrace.domain.engine_events import KeyFailed, KeySlowed
from headrace.domain.errors import Busy, LeaseLost
from headrace.domain.event import Event
from headrace.engine.assignment import Assignment
from headrace.failures.classify import classify
from headrace.failures.policy import Again, DropLease, Park, Retry, SlowDown, StopMain, decide
from headrace.failures.text import text_of
from headrace.ports.observer import Observer
from headrace.ports.subscribers import StopHere
from headrace.ports.work import FailureState, KeyFailure, LoadedPartition

STOP_SECONDS = 1.0
"""Pause of a key whose handler said stop."""

SYSTEMIC_SECONDS = 5.0
"""Pause of a key whose target does not answer; nobody's budget is used."""

ABORTED_SECONDS = 0.05
"""Longest pause of a key whose transaction the database gave up; drawn at random to part the rivals."""

TAKEOVER_LIMIT = 5
"""A key that this many owners died or stalled with is set aside for a person."""


@dataclass(frozen=True, slots=True)
class Slow:
    """Free the key for a while; no failure."""

    delay: float
    reason: str


Verdict = KeyFailure | Slow


def judge(
    assignment: Assignment,
    partition: LoadedPartition,
    event: Event[Any],
    error: BaseException,
    *,
    attempts: int,
    unit: float,
) -> Verdict:
    """Decide about one key; ``attempts`` before this one, ``unit`` a random number in [0, 1).

    Raises:
        LeaseLost: the error says that nothing may be written any more.

    """
    if isinstance(error, StopHere):
        return Slow(STOP_SECONDS, "the handler said stop")
    found = classify(error)
    asked = error.retry_after if isinstance(error, Busy) else None
    state, delay = FailureState.WAITING, None
    match decide(found, attempts + 1, assignment.tracked.bound.retry, unit, asked):
        case DropLease():
            raise LeaseLost(f"lease {assignment.lease} is lost") from error
        case StopMain():
            return Slow(SYSTEMIC_SECONDS * (1 + unit), f"not reachable: {text_of(error).message}")
        case SlowDown(after):
            return Slow(after.total_seconds(), text_of(error).message or found.value)
        case Again():
            return Slow(ABORTED_SECONDS * unit, "the database gave up the transaction")
        case Retry(after):
            state, delay = FailureState.BACKING_OFF, after.total_seconds()
        case Park(retry_after) if retry_after is not None:
            state, delay = FailureState.PARKED, retry_after.total_seconds()
        case Park():
            pass
    text = text_of(error)
    return KeyFailure(
        run=assignment.group.run,
        lease=assignment.lease,
        part=partition.part,
        position=event.position,
        state=state,
        delay=delay,
        failure_class=found.value,
        error_type=text.type,
        error=text.text,
        slot=assignment.lane,
    )


def fatal(assignment: Assignment, partition: LoadedPartition) -> KeyFailure:
    """Return the failure of a key that outlives its owners: no handler ever got to report anything."""
    first = partition.events[0].position if partition.events else partition.position
    return KeyFailure(
        run=assignment.group.run,
        lease=assignment.lease,
        part=partition.part,
        position=first,
        state=FailureState.WAITING,
        delay=None,
        failure_class="unrecoverable",
        error_type="TakenOver",
        error=(
            f"{partition.takeovers} workers in a row died or stalled while they held this key, from position {first} "
            "on; look at their logs (memory, a crash), then `headrace failures resume` or `skip`"
        ),
        slot=assignment.lane,
    )


def wants_hook(verdict: Verdict) -> bool:
    """Tell whether the failed hook has its turn: the budget is spent."""
    return not isinstance(verdict, Slow) and verdict.state is not FailureState.BACKING_OFF


def notice_verdict(
    observer: Observer, name: str, partition: LoadedPartition, event: Event[Any], verdict: Verdict, attempts: int
) -> None:
    """Report a verdict that was written."""
    if isinstance(verdict, Slow):
        observer.notice(KeySlowed(name, partition.key, verdict.delay, verdict.reason))
        return
    observer.notice(
        KeyFailed(
            name, partition.key, event.position, event.type, verdict.state, attempts, verdict.delay, verdict.error
        )
    )
