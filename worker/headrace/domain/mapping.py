"""Where the columns of an event table are: ours, or somebody else's by configuration.

All reading is written against a mapped table. Ours is one mapping; another store's table is read
where it lies, never copied and never written.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from headrace.domain.errors import UsageError


@dataclass(frozen=True, slots=True)
class TableMapping:
    """Names of the table, its columns and the sequence of its positions.

    A column that the table lacks is None. ``sequence`` None means the one that the position column
    owns. ``data`` may be jsonb, json, text, or bytea that holds JSON. ``time`` is what the source says
    of an event, ``appended_at`` when the database stored it. ``exact=False`` accepts a table whose
    positions do not all come from that sequence with CACHE 1 inside the inserting transaction:
    reading it may miss events, and says so.

    ``decode`` makes an event's data of what the data column holds, for data that is not JSON as it lies there:
    compressed, encrypted, pickled, or with a transcoder's own types. It is called with the bytes of a bytea column,
    else with the text, when a handler first asks for the data; what it returns is validated by the handler's model,
    or is the data. What it raises is a failure of that one event. NULL is None and is not decoded.
    """

    table: str
    schema: str = "public"
    position: str = "position"
    stream: str = "stream"
    type: str = "type"
    data: str = "data"
    version: str | None = None
    time: str | None = None
    metadata: str | None = None
    tags: str | None = None
    event_id: str | None = None
    appended_at: str | None = None
    commit_id: str | None = None
    sequence: str | None = None
    exact: bool = True
    own: bool = False
    decode: Callable[[bytes], Any] | Callable[[str], Any] | None = None

    def __post_init__(self) -> None:
        """Refuse a decoder that cannot be one.

        Raises:
            UsageError: ``decode`` is not callable, or is a coroutine function, which makes no data.

        """
        if self.decode is None:
            return
        if not callable(self.decode):
            raise UsageError(
                f"decode of {self.name} must be a function of the stored bytes or text, not {self.decode!r}"
            )
        if inspect.iscoroutinefunction(self.decode):
            raise UsageError(
                f"decode of {self.name} is async: it is called in the middle of a handler, write a plain def"
            )

    @classmethod
    def ours(cls, schema: str = "headrace") -> Self:
        """Return the mapping of our own event table."""
        return cls(
            table="events",
            schema=schema,
            version="version",
            time="recorded_at",
            metadata="metadata",
            tags="tags",
            event_id="event_id",
            appended_at="appended_at",
            commit_id="commit_id",
            own=True,
        )

    @property
    def name(self) -> str:
        """The table with its schema, for people and as the name of the source."""
        return f"{self.schema}.{self.table}"
