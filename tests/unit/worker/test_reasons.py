"""What status says of a subscription that does not move, and how lines are printed."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from rich.text import Text

from headrace.cli.output import count, duration, print_json, print_rows
from headrace.cli.reasons import reasons_of, standing_word
from headrace.domain.ids import PartitionKey
from headrace.domain.subscription import ErrorClass, Status
from headrace.runtime.sampling import sample_of
from support.standings import IDLE, NOW

SOON = NOW + timedelta(seconds=30)


def test_nothing_in_the_way() -> None:
    """A subscription that is caught up, or busy under a live worker, has no reason."""
    assert reasons_of(IDLE, None, NOW) == []
    assert reasons_of(replace(IDLE, inboxed=10, unrouted=5, oldest_seconds=2.0), None, NOW) == []


@pytest.mark.parametrize(
    ("changes", "holder", "parts"),
    [
        ({"workers": 0, "inboxed": 3}, None, ["no live worker", "headrace worker"]),
        ({"workers": 0, "held": 3}, None, ["no live worker"]),
        ({"status": Status.NEW}, None, ["not set up yet", "headrace setup orders"]),
        ({"status": Status.PAUSED, "workers": 0, "inboxed": 3}, None, ["paused by a person"]),
        ({"status": Status.FAILED, "status_reason": "boom"}, None, ["hook has used up its tries: boom"]),
        (
            {"status": Status.ERROR, "error_class": ErrorClass.KEY, "status_reason": "at 7", "retry_at": SOON},
            None,
            ["an event has no usable key: at 7; tried again in 30 s"],
        ),
        (
            {"status": Status.ERROR, "error_class": ErrorClass.SYSTEMIC, "status_reason": "refused", "retry_at": NOW},
            None,
            ["database or target is gone: refused; tried again now"],
        ),
        (
            {"status": Status.ERROR, "error_class": ErrorClass.LOG, "status_reason": "the log went back to 7"},
            None,
            ["it stands still, the log went back to 7"],
        ),
        ({"held": 3}, "pid 7 (import) since noon", ["3 events wait for an open append: pid 7 (import) since noon"]),
        ({}, "pid 7", ["what comes next waits for an open append: pid 7"]),
        ({"held": 1, "horizon_held_seconds": 0.2}, None, ["1 event waits for an open append"]),
        ({"parked": 2, "waiting": 9}, None, ["2 keys parked: `headrace failures list orders`"]),
        ({"backing_off": 1, "waiting": 1, "next_due_at": SOON}, None, ["1 key backs off, next try in 30 s"]),
        ({"backing_off": 1000, "waiting": 1, "next_due_at": SOON}, None, ["at least 1,000 keys back off"]),
        ({"waiting": 9}, None, ["9 events wait behind keys that are held"]),
        ({"exact": False}, None, ["cannot be read exactly"]),
    ],
)
def test_every_cause_is_named_with_what_helps(changes: dict[str, Any], holder: str | None, parts: list[str]) -> None:
    """Design 9: it never hangs without saying why; each cause gives a sentence of its own."""
    found = "\n".join(reasons_of(replace(IDLE, **changes), holder, NOW))

    assert all(part in found for part in parts), found


def test_no_open_append_is_claimed_where_none_holds_the_line() -> None:
    """A line that was told before the last events came is not held: only who looks at it is missing, if anybody."""
    stale = replace(IDLE, held=4, horizon_held_seconds=0.0)
    left = reasons_of(replace(stale, workers=0), None, NOW)

    assert reasons_of(stale, None, NOW) == []
    assert left[1:] == ["4 events were appended since a worker last looked"]
    assert "no live worker" in left[0]


def test_several_causes_are_all_named() -> None:
    """Parked keys, backing-off keys and an open append stand in the way at once: all three are said."""
    standing = replace(IDLE, parked=1, backing_off=2, waiting=9, held=4, next_due_at=SOON)

    assert len(reasons_of(standing, "pid 7", NOW)) == 3


def test_hostile_text_is_made_safe() -> None:
    """The reason of an error is somebody's text: it cannot move the cursor or flood the screen."""
    standing = replace(IDLE, status=Status.ERROR, status_reason="\x1b[2J" + "x" * 5000, retry_at=NOW)
    (found,) = reasons_of(standing, None, NOW)

    assert "\x1b" not in found
    assert len(found) < 1200


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "caught up"),
        ({"held": 3, "horizon_held_seconds": 0.2}, "held"),
        ({"held": 3, "horizon_held_seconds": 0.0}, "waiting"),
        ({"inboxed": 3, "oldest_seconds": 2.13}, "lag 2.1 s"),
        ({"waiting": 3}, "waiting"),
        ({"unrouted": 3, "oldest_seconds": 7200.0}, "lag 2.0 h"),
        ({"status": Status.ERROR, "error_class": ErrorClass.LOG}, "log went back"),
    ],
)
def test_caught_up_held_and_behind_are_told_apart(changes: dict[str, Any], word: str) -> None:
    """The three states of a reader are three words; one whose log went back is in none of them."""
    assert standing_word(replace(IDLE, **changes)) == word


def test_gauges_of_a_subscription() -> None:
    """Backlog is what could be worked on now; no due event is no lag, an unknown age stays unknown."""
    busy = sample_of(replace(IDLE, inboxed=5, unrouted=2, waiting=9, oldest_seconds=3.0, parked=1))
    unknown = sample_of(replace(IDLE, unrouted=2))

    assert (busy.backlog, busy.unrouted, busy.lag_seconds, busy.parked_keys) == (7, 2, 3.0, 1)
    assert (sample_of(IDLE).lag_seconds, unknown.lag_seconds) == (0.0, None)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "unknown"),
        (-1, "0.0 s"),
        (2.13, "2.1 s"),
        (59.6, "60 s"),
        (300, "5 min"),
        (7200, "2.0 h"),
        (10**6, "12 d"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    """Durations have one digit that matters and a unit."""
    assert duration(seconds) == text


def test_counts() -> None:
    """One event, two events, a thousand with a comma; irregular plurals are given."""
    assert [count(n, "event") for n in (0, 1, 1204)] == ["0 events", "1 event", "1,204 events"]
    assert count(2, "key backs off", "keys back off") == "2 keys back off"


def test_rows_are_aligned_by_width(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns line up by what a terminal shows, wide characters included, and nothing is cut or coloured in a pipe."""
    print_rows([["日本", "x" * 300, Text("end", "red")], ["a", "y", "z"]], [["  note"], []])

    first, note, second = capsys.readouterr().out.splitlines()
    assert first == "日本  " + "x" * 300 + "  end"
    assert (note, second) == ("  note", "a     y" + " " * 301 + "z")


def test_json_survives_any_key(capsys: pytest.CaptureFixture[str]) -> None:
    """A lone surrogate in a key does not keep a script from its JSON."""
    print_json({"key": PartitionKey("a\ud800"), "state": Status.ACTIVE, "at": NOW})

    assert '"key": "a\\\\ud800"' in capsys.readouterr().out
