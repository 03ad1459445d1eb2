"""The demonstration's screen, drawn without a terminal: it fits, says what it must, and lets no log text in unseen."""

import io

import pytest
from rich.console import Console

from headrace.cli.demo_screen import screen
from headrace.runtime.demo.figures import (
    Condition,
    FailingKey,
    Figures,
    Mark,
    StoryLine,
    SubscriptionFigures,
    WorkerFigures,
)

STORY = [
    StoryLine(1.0, Mark.STEP, "PostgreSQL 18 runs on port 15000"),
    StoryLine(9.0, Mark.BAD, "worker 2 is killed (kill -9 4712): it held 128 keys with 5,000 events"),
    StoryLine(9.0, Mark.WAIT, "nobody else touches these keys until the dead worker's lease has run out"),
]
FIGURES = Figures(
    at=12.3,
    subject="a made-up shop",
    events=100_000,
    imported=54_000,
    rate=6543.2,
    subscriptions=(
        SubscriptionFigures("cash_book", "whole log in order", "active", handled=6_460, lag=0.0),
        SubscriptionFigures(
            "customers",
            "projector by customer",
            "active",
            unrouted=1_234,
            inbox=22_969,
            behind=677,
            in_flight=2_500,
            lag=16.2,
            partitions=4_184,
            parked=1,
            handled=31_031,
        ),
        SubscriptionFigures("parcel_mails", "reactor that waits", "booting", inbox=183, lag=0.9, partitions=164),
        SubscriptionFigures("products", "batches by product", "active", handled=22_527, inbox=5, behind=5),
    ),
    workers=(
        WorkerFigures(1, 4711, 1, Condition.WORKING, leases=2, keys=16, events=2_500, ends_in=3.9),
        WorkerFigures(2, 4712, 1, Condition.KILLED, leases=1, keys=128, events=5_000, ends_in=1.2),
        WorkerFigures(3, 4713, 1, Condition.KILLED),
        WorkerFigures(4, 4714, 2, Condition.STARTING),
    ),
    failing=(FailingKey("customers", "customer-1116", 20_123, "parked", "TypeError", 677),),
)


def drawn(figures: Figures, story: list[StoryLine], width: int, height: int) -> list[str]:
    """Return the lines of the screen as a terminal of this size would get them."""
    out = Console(file=io.StringIO(), width=width, height=height, color_system=None, legacy_windows=False)
    with out.capture() as captured:
        out.print(screen(figures, story, width, height))
    return captured.get().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50), (80, 60), (120, 24), (60, 24)])
def test_the_screen_fits_its_terminal(width: int, height: int) -> None:
    """No line is wider, and there are no more lines, than the terminal has."""
    lines = drawn(FIGURES, STORY * 10, width, height)

    assert max(map(len, lines)) <= width
    assert len(lines) <= height


@pytest.mark.parametrize("width", [80, 200])
def test_the_screen_says_what_happens(width: int) -> None:
    """Speed, what waits, each subscription's state and lag, each worker's leases, and what has just happened."""
    lines = drawn(FIGURES, STORY, width, 40)
    text = "\n".join(lines)
    (customers,) = (line.split() for line in lines if line.startswith("customers"))
    (first,) = (line.split() for line in lines if line.startswith("worker 1"))
    (second,) = (line for line in lines if line.startswith("worker 2"))
    (third,) = (line for line in lines if line.startswith("worker 3"))

    for wanted in ("events/s 6,543", "unrouted 1,234", "inbox 23,157", "partitions 4,348", "54,000 of 100,000"):
        assert wanted in text
    assert {"parked", "31,031", "1,234", "22,969", "4,184", "16"} <= set(customers)
    assert {"working", "2", "16", "2,500", "3.9"} <= set(first)
    assert "killed" in second
    assert "1.2 s" in second
    assert "taken over" in third
    assert "nobody else touches these keys" in text


def test_a_wide_screen_says_more() -> None:
    """Where there is room the kind of each subscriber, the failing key and what waits behind it are shown."""
    narrow, wide = ("\n".join(drawn(FIGURES, STORY, width, 40)) for width in (80, 200))

    for words in ("projector by customer", "customer-1116: TypeError, 677 wait behind it", "4711"):
        assert words in wide
        assert words not in narrow


def test_on_a_narrow_screen_no_name_is_cut() -> None:
    """With 60 columns some figures are left out, and every name and every number that is there is whole."""
    text = "\n".join(drawn(FIGURES, [], 60, 40))

    for words in ("parcel_mails", "1 parked", "31,031", "22,969", "worker 2", "5,000", "1.2 s"):
        assert words in text
    assert "…" not in text


def test_a_caught_up_subscription_is_told_from_one_whose_key_is_parked() -> None:
    """Nothing left is `caught up`; nothing left but what waits behind a failing key is `rest done`."""
    lines = drawn(FIGURES, [], 80, 40)

    assert next(line for line in lines if line.startswith("cash_book")).endswith("caught up")
    assert next(line for line in lines if line.startswith("products")).endswith("rest done")


def test_before_the_first_look_there_is_a_screen_too() -> None:
    """Without any figure yet it says that the subscriptions are not set up."""
    lines = drawn(Figures(0.5, "a made-up shop", 100_000), [], 80, 24)

    assert sum("not set up yet" in line for line in lines) == 4


def test_text_from_a_log_cannot_move_the_cursor() -> None:
    """A key, a name and a story with escape sequences are shown as text."""
    evil = "\x1b[2Jgone\r\n"
    figures = Figures(
        1.0,
        evil,
        10,
        subscriptions=(SubscriptionFigures(evil, evil, "active"),),
        failing=(FailingKey(evil, evil, 1, "parked", evil, 1),),
    )
    text = "\n".join(drawn(figures, [StoryLine(1.0, Mark.BAD, evil)], 200, 24))

    assert "\x1b" not in text
    assert "\r" not in text
