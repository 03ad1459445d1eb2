"""How subscriptions are drawn: at 80 and 200 columns, with long names, and in colours that every screen can show."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from rich.color import Color
from rich.color_triplet import ColorTriplet
from rich.console import Console
from rich.style import Style
from rich.text import Text

from headrace.cli.board import detail_lines, partition_lines, screen_lines, status_lines
from headrace.cli.helping import STYLES
from headrace.cli.looks import Look
from headrace.cli.output import PALETTE, colours
from headrace.cli.tables import aligned, fitted, folded, shortened, widest
from headrace.cli.top import View, rates_between
from headrace.domain.ids import PartitionKey, Position
from headrace.domain.subscription import Kind, Status
from headrace.ports.horizon import HolderReport
from headrace.ports.status import LiveWorker, PartitionStanding
from headrace.ports.work import FailureState
from support.standings import IDLE, NOW

BUSY = replace(
    IDLE,
    subscription="orders_by_customer",
    group_name="shop",
    head=Position(104_233),
    inboxed=3400,
    waiting=100,
    in_flight=64,
    oldest_seconds=2.1,
    pending_partitions=120,
    touched_partitions=130,
    largest_partition=90,
    parked=2,
    arrivals_total=4704,
    busy_seconds_total=12.5,
    capacity=8,
)
MAIL = replace(
    BUSY,
    subscription="welcome_mail",
    status=Status.PAUSED,
    parked=0,
    waiting=0,
    inboxed=12_345_678,
    unrouted=987_654_321,
    pending_partitions=1_000_000,
    workers=0,
    kind=Kind.REACTOR,
)
WORKER = LiveWorker("host-7:4711", "shop", "0.1.0", 4, ("orders_by_customer", "welcome_mail"), NOW, 0.4)
SEEN = Look(NOW + timedelta(seconds=90), [BUSY, MAIL], {}, [WORKER], None, None)
RATES = {"orders_by_customer": 1240.4}


def text_of(lines: Sequence[Text]) -> str:
    """Return lines as they are read."""
    return "\n".join(line.plain for line in lines)


def words(text: str) -> str:
    """Return a text with single blanks."""
    return " ".join(text.split())


def test_one_line_as_the_contract_has_it() -> None:
    """In a pipe, and wherever it fits, a subscription is one line, in the order of the contract's example."""
    alone = replace(SEEN, standings=[BUSY])

    assert (
        text_of(status_lines(alone, None))
        == text_of(status_lines(alone, 200))
        == (
            "orders_by_customer  active  1204 (parked: 2)  inbox: 3500 in 120  lag 2.1 s  2 workers\n"
            "  2 keys parked: `headrace failures list orders_by_customer`"
        )
    )


def test_two_lines_where_one_does_not_fit() -> None:
    """At 80 columns each subscription has two lines: how it stands, then its figures; then why."""
    assert text_of(status_lines(SEEN, 80)) == (
        "orders_by_customer  active  lag 2.1 s  2 workers\n"
        "  1204 (parked: 2)  inbox: 3500 in 120\n"
        "  2 keys parked: `headrace failures list orders_by_customer`\n"
        "welcome_mail        paused  lag 2.1 s  no worker\n"
        "  1204              unrouted: 987654321  inbox: 12345678 in 1000000\n"
        "  it was paused by a person"
    )


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    """Long names, large figures and long reasons keep within every width, and no figure is cut."""
    long = replace(MAIL, subscription="a_name_of_" + "very_" * 40 + "many_letters")
    holder = HolderReport(4711, None, "nightly import of everything", "10.0.0.7", "idle in transaction", NOW, 4000.0)
    seen = replace(
        SEEN, standings=[BUSY, long, replace(MAIL, subscription="日本" * 30)], holders={BUSY.subscription: holder}
    )
    drawn = status_lines(seen, width)
    live, _ = screen_lines(seen, (width, 60), RATES)
    details = detail_lines(seen, long, width)

    assert widest([*drawn, *live, *details]) <= width
    for figure in ("1204", "987654321", "12345678", "1000000", "pid 4711", "idle in transaction"):
        assert figure in words(text_of(drawn)), figure
    assert "12,345,678 due or leased" in words(text_of(details))


def test_a_wide_screen_keeps_one_line() -> None:
    """At 200 columns names stand under each other, one line each, with nothing left out."""
    lines = [line.plain for line in status_lines(SEEN, 200) if not line.plain.startswith(" ")]

    assert len(lines) == 2
    assert len({line.index("lag") for line in lines}) == 1


def test_partitions_go_on_below_where_they_do_not_fit() -> None:
    """A partition with a long error takes more lines on a narrow screen and one on a wide one; nothing is lost."""
    partition = PartitionStanding(
        PartitionKey("customer-17\x1b[2J"), Position(3), 40, Position(4), None, 1, 0, None, None, None,
        FailureState.PARKED, "ValueError: " + "no such currency " * 5,
    )  # fmt: skip
    narrow, wide = (partition_lines("orders", [partition], width) for width in (80, 200))

    assert len(wide) == 2
    assert len(narrow) > 2
    assert widest(narrow) <= 80
    assert words(text_of(narrow)) == words(text_of(wide))
    assert "#customer-17\\x1b[2J" in text_of(wide)


def test_the_heading_of_partitions_says_how_many_have_work() -> None:
    """None, one and several are three headings; an order is named where there is one."""
    one = PartitionStanding(
        PartitionKey("a"), Position(3), 1, Position(4), None, 0, 0, None, None, None, None, None
    )  # fmt: skip
    headings = [partition_lines("orders", [one] * number, 80)[0].plain for number in range(3)]

    assert headings == [
        "orders: no partition has work",
        "orders: 1 partition with work",
        "orders: 2 partitions with work, furthest behind first",
    ]


def test_the_live_screen_fills_its_size() -> None:
    """Head, subscriptions with their rates, workers, and the key that ends it: as many lines as there are rows."""
    lines, scrolled = screen_lines(SEEN, (120, 20), RATES)

    assert (len(lines), scrolled) == (20, 0)
    assert words(lines[0].plain) == "headrace 12:01:30 1 worker 1,240 events/s backlog 1,000,003,399 head 104233"
    assert "1,240/s" in lines[1].plain
    assert "host-7:4711 shop 0.1.0 4 lanes up 90 s beat 0.4 s ago orders_by_customer, welcome_mail" in words(
        text_of(lines)
    )
    assert lines[-1].plain == "q ends"


def test_a_low_screen_scrolls() -> None:
    """What does not fit is reached by scrolling, no further than there is something; the foot says how much is left."""
    first, _ = screen_lines(SEEN, (80, 6), RATES)
    last, scrolled = screen_lines(SEEN, (80, 6), RATES, scrolled=1000)

    assert (len(first), len(last)) == (6, 6)
    assert first[-1].plain == "q ends  ↑↓ scroll, 6 more lines"
    assert scrolled == 6
    assert "host-7" in text_of(last)
    assert last[-1].plain == "q ends  ↑↓ scroll"


def test_the_live_screen_says_what_is_wrong() -> None:
    """A database that went away is said where the keys are told; what was seen last stays."""
    lines, _ = screen_lines(SEEN, (80, 20), RATES, "the database cannot be reached; trying again")

    assert lines[-1].plain == "the database cannot be reached; trying again"
    assert "orders_by_customer" in text_of(lines)


def test_an_empty_database_on_the_live_screen() -> None:
    """Without a subscription the screen says how to begin."""
    lines, _ = screen_lines(Look(NOW, [], {}, [], None, None), (80, 10), {})

    assert "headrace worker" in text_of(lines)


def test_rates_are_told_by_two_looks() -> None:
    """Events handled between two looks, by the second; one that is new, or was reset, has none."""
    later = replace(
        SEEN,
        at=SEEN.at + timedelta(seconds=2),
        standings=[
            replace(BUSY, processed_total=2204),
            replace(MAIL, processed_total=3),
            replace(BUSY, subscription="new"),
        ],
    )

    assert rates_between(SEEN, later) == {"orders_by_customer": 500.0, "welcome_mail": 0.0, "new": 0.0}


@pytest.mark.parametrize(
    ("key", "ended", "scrolled"), [("q", True, 0), ("\x03", True, 0), ("j", False, 1), ("x", False, 0)]
)
async def test_keys(key: str, ended: bool, scrolled: int) -> None:
    """Q and Ctrl-C end the screen, arrows move it, other keys do nothing; after each it is drawn anew."""
    view = View(lambda: (80, 6))
    view.take(SEEN)
    view.press(key)
    view.drawn()

    assert (view.ended, view.scrolled, view.asked.is_set()) == (ended, scrolled, True)


@pytest.mark.parametrize(
    ("environment", "terminal", "wanted"),
    [
        ({"TERM": "xterm-256color"}, True, True),
        ({"TERM": "xterm-256color"}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True, True),
    ],
)
def test_who_gets_colours(environment: dict[str, str], terminal: bool, wanted: bool) -> None:
    """A terminal that is not dumb has colours; FORCE_COLOR gives them to a pipe, NO_COLOR takes them from everybody."""
    assert colours(environment, terminal=terminal) is wanted


def contrast(colour: ColorTriplet, ground: ColorTriplet) -> float:
    """Return the contrast of two colours, 1 to 21, by WCAG 2.1."""
    lighter, darker = sorted((luminance(colour), luminance(ground)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: ColorTriplet) -> float:
    """Return the relative luminance of a colour, by WCAG 2.1."""
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("name", PALETTE)
def test_every_colour_can_be_read_on_black_and_on_white(name: str) -> None:
    """No colour vanishes: its contrast is at least 3.8 on both grounds (4.5 is asked of small text, 3 of large)."""
    colour = Color.parse(name).get_truecolor()

    assert contrast(colour, ColorTriplet(0, 0, 0)) >= 3.8
    assert contrast(colour, ColorTriplet(255, 255, 255)) >= 3.8


def test_only_those_colours_are_used() -> None:
    """What is drawn, and the pages of help, have no colour that is not in the palette, and no faint text."""
    seen = replace(SEEN, standings=[replace(BUSY, status=status) for status in Status], problem="no")
    lines, _ = screen_lines(seen, (80, 100), RATES, "news")
    console = Console()
    styles = [Style.parse(style) for style in STYLES.values() if "{" not in style]
    drawn = [segment.style for line in lines for segment in line.render(console)]
    used = [style for style in [*styles, *drawn] if isinstance(style, Style)]

    assert {style.color.name for style in used if style.color is not None} <= set(PALETTE)
    assert not any(style.dim for style in used)


def test_columns_and_their_going_on() -> None:
    """Cells line up where all rows fit; else each row goes on below, indented, with no cell broken that need not be."""
    rows = [["a", "bb", "c"], ["aaa", "b", "cc"]]

    assert [line.plain for line in aligned(rows)] == ["a    bb  c", "aaa  b   cc"]
    assert [[line.plain for line in row] for row in fitted(rows, 12)] == [["a    bb  c"], ["aaa  b   cc"]]
    assert [[line.plain for line in row] for row in fitted([["aaaa", "bbbb", "cccc"]], 10)] == [
        ["aaaa  bbbb", "    cccc"]
    ]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two three", 20, ["one two three"]),
        ("one two three", 9, ["one two", "  three"]),
        ("  one two three", 9, ["  one two", "  three"]),
        ("a" * 20, 8, ["a" * 8, "  " + "a" * 8, "  aaaa"]),
        ("one\ntwo", 20, ["one", "  two"]),
        ("日本日本 日本", 9, ["日本日本", "  日本"]),
    ],
)
def test_words_go_on_in_the_next_line(text: str, width: int, lines: list[str]) -> None:
    """Text is broken between words, a word that never fits within itself, wide characters counted as two."""
    found = [line.plain for line in folded(text, width, "  ")]

    assert found == lines


def test_a_broken_text_keeps_its_styles() -> None:
    """The colour of a word is still its own after the break."""
    text = Text("many more ").append("two", "color(160)").append(" three")
    second = folded(text, 9, "  ")[1]

    assert (second.plain, [(span.start, span.end, span.style) for span in second.spans]) == (
        "  two",
        [(2, 5, "color(160)")],
    )


@pytest.mark.parametrize(
    ("name", "width", "wanted"),
    [("orders", 10, "orders"), ("orders_by_customer", 11, "order…tomer"), ("日本日本日本", 9, "日本…日本")],
)
def test_names_lose_their_middle(name: str, width: int, wanted: str) -> None:
    """A name that is too long keeps its beginning and its end."""
    assert shortened(name, width) == wanted
