"""What `headrace dev` remembers of an events file, and which changes of the file it refuses."""

import gzip
import io
from pathlib import Path

import pytest

from headrace.runtime.dev.taken import LineDiffers, Taken
from headrace.runtime.json_lines import read_lines, unpacked

A, B, C = (f'{{"stream": "{name}", "type": "T", "data": {{}}}}\n'.encode() for name in "abc")


def take(taken: Taken, text: bytes) -> int:
    """Read a file to its end as an import does, remember it, and return how many events it had."""
    lines = taken.reading(io.BytesIO(text))
    events = len(list(read_lines(unpacked(lines))))
    taken.note(lines)
    taken.keep()
    return events


@pytest.mark.parametrize(
    ("text", "events"),
    [(A + B, 2), (A + B + C, 3), (A + B[:-1], 2), (A + B + b"\n\n", 2), (gzip.compress(A + B + C), 3)],
    ids=["the same", "grown", "without its last end", "empty lines", "packed"],
)
def test_a_file_that_begins_as_before_is_read(tmp_path: Path, text: bytes, events: int) -> None:
    """What gives the events that were taken the same ids is the same beginning, whatever follows."""
    take(Taken(tmp_path / "events", tmp_path), A + B + b"\n")

    assert take(Taken(tmp_path / "events", tmp_path), text) == events


@pytest.mark.parametrize(
    ("text", "number"),
    [(b"", 1), (A, 2), (B, 1), (B + A, 1), (A + C + B, 2), (A + b"\n" + B, 2), (A + b" " + B + C, 2)],
    ids=["emptied", "cut", "first gone", "turned round", "one between", "an empty line between", "a blank"],
)
def test_the_first_line_that_differs_is_named(tmp_path: Path, text: bytes, number: int) -> None:
    """Whatever would make lines new that are in the log already is refused with the first line's number."""
    take(Taken(tmp_path / "events", tmp_path), A + B)

    with pytest.raises(LineDiffers) as caught:
        take(Taken(tmp_path / "events", tmp_path), text)
    assert caught.value.number == number
    assert take(Taken(tmp_path / "events", tmp_path), A + B + C) == 3


def test_a_file_that_ends_where_an_empty_line_was_is_cut(tmp_path: Path) -> None:
    """An empty line changes no digest, and the event behind it is still missed."""
    taken = Taken(tmp_path / "events", None)
    take(taken, A + b"\n" + B)

    with pytest.raises(LineDiffers, match="line 2 "):
        take(taken, A)


def test_a_file_is_known_by_its_path_and_for_one_run_without_a_folder(tmp_path: Path) -> None:
    """Another file is another beginning; where nothing is kept, the same run still knows."""
    take(Taken(tmp_path / "one", tmp_path), A + B)
    passing = Taken(tmp_path / "two", None)

    assert take(Taken(tmp_path / "two", tmp_path), B) == 1
    assert take(passing, A) == 1
    with pytest.raises(LineDiffers):
        take(passing, B)
    assert take(Taken(tmp_path / "two", None), B) == 1
