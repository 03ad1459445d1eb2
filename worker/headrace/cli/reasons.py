"""Why a subscription stands still, or is behind: sentences that name the cause and what helps.

Pure: from figures to words. Order is by weight; an empty list means that nothing is in the way.
"""

from datetime import datetime

from headrace.cli.output import count, duration, shown
from headrace.domain.subscription import ErrorClass, Status
from headrace.ports.status import Standing

OF_STATUS = {
    Status.NEW: "it is not set up yet: a worker does it, or `headrace setup {name}`",
    Status.PAUSED: "it was paused by a person",
    Status.FINISHED: "it was to run once and has reached its end",
    Status.DETACHED: "no application declares it any more",
    Status.FAILED: "its hook has used up its tries: {reason}",
    Status.RESETTING: "a reset is under way",
}


def reasons_of(standing: Standing, holder: str | None, now: datetime) -> list[str]:
    """Return what stands in the way of one subscription; ``holder`` is who holds the line of its event table."""
    found = [
        *_of_status(standing, now),
        *_of_workers(standing),
        *_of_horizon(standing, holder),
        *_of_keys(standing, now),
    ]
    if not standing.exact:
        found.append("its event table cannot be read exactly: events may be missed (exact=False in the mapping)")
    return found


def standing_word(standing: Standing) -> str:
    """Return caught up, held, or how far behind it is; of a log that went back nothing of that can be said.

    Above a line that no open append holds, events wait only for a worker to look there.
    """
    if standing.error_class is ErrorClass.LOG:
        return "log went back"
    if standing.backlog == 0 and standing.waiting == 0:
        if not standing.held:
            return "caught up"
        return "held" if standing.horizon_held_seconds else "waiting"
    return f"lag {duration(standing.oldest_seconds)}" if standing.oldest_seconds is not None else "waiting"


def _of_status(standing: Standing, now: datetime) -> list[str]:
    reason = shown(standing.status_reason or "unknown", 1000)
    if standing.status is Status.ERROR:
        if standing.error_class is ErrorClass.LOG:
            return [f"it stands still, {reason}"]
        why = {ErrorClass.KEY: "an event has no usable key", ErrorClass.SETUP: "its set-up failed"}
        what = why.get(standing.error_class, "its database or target is gone") if standing.error_class else "it failed"
        return [f"it stands still, {what}: {reason}; tried again {_when(standing.retry_at, now)}"]
    if standing.status in OF_STATUS:
        return [OF_STATUS[standing.status].format(name=standing.subscription, reason=reason)]
    return []


def _of_workers(standing: Standing) -> list[str]:
    idle = standing.backlog == 0 and standing.waiting == 0 and standing.held == 0
    if standing.workers > 0 or idle or not (standing.status.is_running or standing.status is Status.ERROR):
        return []
    return ["no live worker works on it: start `headrace worker`"]


def _of_horizon(standing: Standing, holder: str | None) -> list[str]:
    if holder is not None:
        waiting = count(standing.held, "event waits", "events wait") if standing.held else "what comes next waits"
        return [f"{waiting} for an open append: {holder}"]
    if standing.held and standing.horizon_held_seconds:
        return [f"{count(standing.held, 'event waits', 'events wait')} for an open append"]
    if standing.held and standing.workers == 0:
        # The line is an old one, told by a worker that has ended, or by one of other subscriptions.
        return [f"{count(standing.held, 'event was', 'events were')} appended since a worker last looked"]
    return []


def _of_keys(standing: Standing, now: datetime) -> list[str]:
    found = []
    if standing.parked:
        found.append(f"{count(standing.parked, 'key')} parked: `headrace failures list {standing.subscription}`")
    if standing.backing_off:
        more = "at least " if standing.backing_off >= 1000 else ""  # noqa: PLR2004 - where the count stops
        keys = count(standing.backing_off, "key backs off", "keys back off")
        found.append(f"{more}{keys}, next try {_when(standing.next_due_at, now)}")
    if standing.waiting and not standing.parked and not standing.backing_off:
        found.append(f"{count(standing.waiting, 'event waits', 'events wait')} behind keys that are held")
    return found


def _when(time: datetime | None, now: datetime) -> str:
    if time is None:
        return "by hand"
    seconds = (time - now).total_seconds()
    return f"in {duration(seconds)}" if seconds > 0 else "now"
