"""What is played: the made-up shop, or a log of the user's. Values only, and the one look into a file that makes them.

Both have four subscribers of different kinds, one event that the first release of one subscriber cannot handle, and
read models that SQL over the log can say everything about.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from headrace.domain.errors import BadInput
from headrace.runtime.json_lines import read_lines, unpacked

FOLDER = "HEADRACE_DEMO_FOLDER"
"""Where the demonstration keeps its mails and notes; workers are told by this variable."""
RELEASE = "HEADRACE_DEMO_RELEASE"
"""Which release of the subscribers a worker runs: 1 has the mistake, 2 the fix."""

NOTES = "plot.json"
MAILBOX = "mailbox"
PEEKED = 2000
"""So many events of a log decide what its reactor is for, and which key is poisoned."""
FEW = 0.05
"""A reactor with side effects is for something that happens now and then."""


@dataclass(frozen=True, slots=True)
class Plot:
    """One play. ``kinds`` are the subscribers with what they show; ``mailed`` is the type that the reactor is for."""

    subject: str
    app: str
    events: int
    kinds: Mapping[str, str]
    reactor: str
    mailed: str
    mistake: str
    fix: str
    poison: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Notes:
    """What a worker must know of a user's log: the type its reactor is for, the stream and version that is poisoned."""

    mailed: str = ""
    stream: str = ""
    version: int = 0

    def write(self, folder: Path) -> None:
        """Leave the notes for the workers."""
        text = json.dumps({"mailed": self.mailed, "stream": self.stream, "version": self.version})
        (folder / NOTES).write_text(text, "utf-8")


def read_notes() -> Notes:
    """Return the notes of the demonstration that this worker belongs to; empty ones outside of it."""
    path = Path(os.environ.get(FOLDER, ""), NOTES)
    return Notes(**json.loads(path.read_text("utf-8"))) if FOLDER in os.environ and path.exists() else Notes()


def shop_plot(events: int) -> Plot:
    """Return the play of the made-up shop."""
    return Plot(
        subject="a made-up shop",
        app="headrace.runtime.demo.subscribers:app",
        events=events,
        kinds={
            "cash_book": "whole log in order",
            "customers": "projector by customer",
            "parcel_mails": "reactor that waits",
            "products": "batches by product",
        },
        reactor="parcel_mails",
        mailed="Order shipped",
        mistake="a payment came with its amount as text",
        fix="reads amounts that are text, too",
    )


def plot_of_file(path: Path, most: int | None) -> Plot:
    """Return the play of a user's log, of which at most so many events are used.

    Raises:
        BadInput: the file cannot be read, or holds no event.

    """
    try:
        with path.open("rb") as file:
            peeked = [(line.stream, line.event.type) for line in islice(read_lines(unpacked(file)), PEEKED)]
        events = _count(path, most)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error
    if not peeked:
        raise BadInput(f"{path}: there is no event in it; write one JSON object a line: stream, type, data")
    types, streams = Counter(type_ for _, type_ in peeked), Counter(stream for stream, _ in peeked)
    stream, times = streams.most_common(1)[0]
    return Plot(
        subject=path.name,
        app="headrace.runtime.demo.any_log:app",
        events=events,
        kinds={
            "by_day": "batches by day",
            "by_stream": "projector by stream",
            "by_type": "whole log in order",
            "notices": "reactor that waits",
        },
        reactor="notices",
        mailed=min(types, key=lambda type_: (abs(types[type_] / len(peeked) - FEW), type_)),
        mistake="release 1 stumbles here on purpose",
        fix="does not stumble",
        poison=(stream, min(times, 2)),
    )


def _count(path: Path, most: int | None) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in first_lines(unpacked(file), most))


def first_lines(lines: Iterable[bytes], most: int | None) -> Iterator[bytes]:
    """Yield lines with something in them, at most so many."""
    return islice((line for line in lines if line.strip()), most)
