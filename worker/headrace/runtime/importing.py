"""Import of files of events: chunk by chunk, each whole or not at all, safe to repeat.

Order in the log is the order of the lines, so there is one chunk at a time. What a chunk holds already is passed over
by its event id; a bad line costs its own chunk and ends the import, with all earlier chunks kept.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import IO

from headrace.domain.errors import BadInput, UnstorableEvent
from headrace.ports.events import EventAppender
from headrace.runtime.json_lines import BadLine, Line, read_lines, unpacked

CHUNK_EVENTS = 1000
CHUNK_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Imported:
    """How many events were added, and how many were in the log already."""

    added: int = 0
    known: int = 0

    @property
    def events(self) -> int:
        """All events that were read."""
        return self.added + self.known


OnChunk = Callable[[Imported], None]


async def import_file(file: IO[bytes], events: EventAppender, on_chunk: OnChunk | None = None) -> Imported:
    """Append the events of one file in order and return the counts; ``on_chunk`` hears them after each chunk.

    Raises:
        BadLine: a line cannot be imported; nothing of its chunk is stored, everything before it is.

    """
    done = Imported()
    for chunk in _chunks(read_lines(unpacked(file))):
        try:
            added = await events.import_chunk([(line.stream, line.event) for line in chunk])
        except UnstorableEvent as error:
            raise BadLine(chunk[error.index].number, error.problem) from error
        except BadInput as error:
            raise BadInput(f"lines {chunk[0].number} to {chunk[-1].number}: {error}") from error
        done = Imported(done.added + added, done.known + len(chunk) - added)
        if on_chunk is not None:
            on_chunk(done)
    return done


def _chunks(lines: Iterator[Line]) -> Iterator[list[Line]]:
    """Yield lists of at most 1,000 lines, fewer where they are long."""
    while chunk := list(_bounded(lines)):
        yield chunk


def _bounded(lines: Iterator[Line]) -> Iterator[Line]:
    size = 0
    for line in islice(lines, CHUNK_EVENTS):
        yield line
        size += len(line.event.data)
        if size >= CHUNK_BYTES:
            return
