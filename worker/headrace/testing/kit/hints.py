"""Why an expectation may have failed: events of the test that no subscriber of the run got to see.

Pure: from subscribers and events to lines of text. Both are often right, so they are told only beside a failure.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from headrace.domain.errors import KeyNotMade
from headrace.domain.event import Event
from headrace.partitioning.keys import describe, key_of
from headrace.ports.subscribers import BoundSubscriber

MOST_HINTS = 5


def overlooked(subscribers: Sequence[BoundSubscriber], events: Iterable[Event[Any]]) -> list[str]:
    """Return a line for each type of event that got no key, and for each that nobody wants; the first few of them."""
    log = list(events)
    return [*_without_key(subscribers, log), *_unwanted(subscribers, log)][:MOST_HINTS]


def _without_key(subscribers: Sequence[BoundSubscriber], events: Sequence[Event[Any]]) -> list[str]:
    lines = []
    for subscriber in subscribers:
        partitioner = subscriber.partitioner
        if partitioner is None:
            continue
        missing: Counter[str] = Counter()
        for event in events:
            try:
                if subscriber.wanted.wants(event) and key_of(partitioner, event) is None:
                    missing[event.type] += 1
            except KeyNotMade:
                continue  # an error of the run, which tells of it by itself
        lines += [
            f"{_counted(count)} of type {type!r} {'has' if count == 1 else 'have'} no key by {describe(partitioner)}: "
            f"passed over by {subscriber.name!r}"
            for type, count in missing.items()
        ]
    return lines


def _unwanted(subscribers: Sequence[BoundSubscriber], events: Sequence[Event[Any]]) -> list[str]:
    wanted: set[str] = set()
    for subscriber in subscribers:
        if subscriber.wanted.types is None:
            return []
        wanted.update(subscriber.wanted.types)
    lines = []
    for type in dict.fromkeys(event.type for event in events if event.type not in wanted):
        near = get_close_matches(type, sorted(wanted), n=1)
        lines.append(f"no subscriber wants type {type!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return lines


def _counted(count: int) -> str:
    return "1 event" if count == 1 else f"{count} events"
