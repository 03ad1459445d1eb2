"""From the kind of a failure and its count to what happens to the key.

The one table of what a failure leads to. It decides and does nothing: the engine writes the
decision, and a decision that cannot be written moves nothing.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from headrace.failures.backoff import RetryPolicy
from headrace.failures.classify import FailureClass

SHORTEST_DELAY: Final = timedelta(milliseconds=100)
"""A busy key is never asked more often, whatever its handler says."""

USUAL_DELAY: Final = timedelta(seconds=1)
"""What a busy key waits for when its handler did not say."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Try the same event again after the delay; the failure is recorded and counted."""

    after: timedelta


@dataclass(frozen=True, slots=True)
class Park:
    """Set the key aside; try it again after the delay, or leave it to a person when there is none."""

    retry_after: timedelta | None


@dataclass(frozen=True, slots=True)
class SlowDown:
    """Have the same event again after the delay; no failure is recorded or counted."""

    after: timedelta


@dataclass(frozen=True, slots=True)
class Again:
    """Do the same at once: the database gave the transaction up for no fault of its content."""


@dataclass(frozen=True, slots=True)
class StopMain:
    """Put the subscription into error, class systemic; no key is charged."""


@dataclass(frozen=True, slots=True)
class DropLease:
    """Drop everything of this lease and write nothing, not even the failure."""


Decision = Retry | Park | SlowDown | Again | StopMain | DropLease


def decide(
    failure: FailureClass,
    attempts: int,
    policy: RetryPolicy,
    unit: float,
    retry_after: timedelta | None = None,
) -> Decision:
    """Return what to do about one failure of one key.

    ``attempts`` counts the failures of this event since it was first tried or resumed, this one
    included, through retries and parking alike; for BUSY it counts how often in a row (1 where
    nobody counts), and ``retry_after`` is what the handler asked for. ``unit`` is chance, 0 to 1.
    """
    match failure:
        case FailureClass.LEASE_LOST:
            return DropLease()
        case FailureClass.ABORTED:
            return Again()
        case FailureClass.SYSTEMIC:
            return StopMain()
        case FailureClass.UNRECOVERABLE:
            return Park(None)
        case FailureClass.BUSY:
            asked = max(USUAL_DELAY if retry_after is None else retry_after, SHORTEST_DELAY)
            return SlowDown(policy.busy_delay(asked, attempts, unit))
        case FailureClass.RECOVERABLE:
            delay = policy.next_delay(attempts, unit)
            return Retry(delay) if delay else Park(policy.parked_delay(attempts - policy.attempts, unit))
