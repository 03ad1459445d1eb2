"""What `headrace dev` has appended of an events file: only ever the same beginning, and then more.

A line's event id derives from all the text up to its end, so a line that is changed or gone would make every line after
it a new event, and read models would count twice. The running digest of each line that was taken is remembered beside
the kept database; a file that no longer begins with them is refused while it is read, before anything is appended.
"""

import hashlib
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, cast

from headrace.domain.errors import BadInput
from headrace.runtime.json_lines import unpacked

WIDTH = 16
"""Bytes that are kept of a line's digest."""


class LineDiffers(BadInput):
    """The file no longer begins with what was taken; ``number`` is the first line that differs, from 1."""

    def __init__(self, number: int) -> None:
        super().__init__(f"line {number} differs from what is in the log")
        self.number = number


class Taken:
    """The lines of one events file that are in the log; remembered in a folder, or for this run alone where None."""

    def __init__(self, events: Path, folder: Path | None) -> None:
        """Take up what an earlier run remembered of this file."""
        name = hashlib.sha256(str(events).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._record = None if folder is None else folder / f"{name}.taken"
        self._lines = self._record.read_bytes() if self._record is not None and self._record.is_file() else b""

    def reading(self, file: IO[bytes]) -> "CheckedLines":
        """Return the file to be read line by line; a line that differs raises LineDiffers instead of being read."""
        return CheckedLines(file, self._lines)

    def note(self, read: "CheckedLines") -> None:
        """Remember that all that was read so far is in the log."""
        if len(read.events) > len(self._lines):
            self._lines = read.events

    def keep(self) -> None:
        """Write down what is remembered, for the next run."""
        if self._record is not None and self._record.parent.is_dir():
            beside = self._record.with_suffix(".new")
            beside.write_bytes(self._lines)
            beside.replace(self._record)


class CheckedLines(BufferedReader):
    """A file of events, unpacked, whose lines must begin with those that were taken."""

    def __init__(self, file: IO[bytes], taken: bytes) -> None:
        super().__init__(cast("Any", unpacked(file)))
        self._taken = taken
        self._digest = hashlib.sha256()
        self._lines = bytearray()
        self._events = 0

    @property
    def events(self) -> bytes:
        """The digests of the lines read so far, up to the last with an event: empty ones at the end may go."""
        return bytes(self._lines[: self._events])

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return the next line.

        Raises:
            LineDiffers: another line stood here when it was taken.

        """
        line = super().readline(size)
        # As event ids are derived: without the line's end, which the last line may get only when the file grows.
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        self._digest.update(text)
        at = len(self._lines)
        if at < len(self._taken) and (not line or self._digest.digest()[:WIDTH] != self._taken[at : at + WIDTH]):
            raise LineDiffers(at // WIDTH + 1)
        if line:
            self._lines += self._digest.digest()[:WIDTH]
            self._events = len(self._lines) if text.strip() else self._events
            self._digest.update(line[len(text) :])
        return line
