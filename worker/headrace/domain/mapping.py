"""Where the columns of an event table are: ours, or somebody else's by configuration.

All reading is written against a mapped table. Ours is one mapping; another store's table is read
where it lies, never copied and never written.
"""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class TableMapping:
    """Names of the table, its columns and the sequence of its positions.

    A column that the table lacks is None. ``sequence`` None means the one that the position column
    owns. ``data`` may be jsonb, json, text, or bytea that holds JSON. ``time`` is what the source says
    of an event, ``appended_at`` when the database stored it. ``exact=False`` accepts a table whose
    positions do not all come from that sequence with CACHE 1 inside the inserting transaction:
    reading it may miss events, and says so.
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
