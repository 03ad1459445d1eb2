"""A log that goes back, and comes back: what restores of the event table alone do to the rows and the sequence."""

from typing import Any

BACK = """
create table if not exists lost_events as table headrace.events with no data;
with gone as (delete from headrace.events where position > {to} returning *) insert into lost_events select * from gone;
select setval('headrace.events_position_seq', greatest({to}, 1), {to} > 0);
"""
RESTORE = """
delete from headrace.events e using lost_events l where e.position = l.position;
insert into headrace.events overriding system value select * from lost_events;
select setval('headrace.events_position_seq', (select max(position) from headrace.events));
drop table lost_events;
"""


async def go_back(connection: Any, to: int) -> None:
    """Make the log what it was at a position; what it loses is kept aside."""
    await connection.execute(BACK.format(to=int(to)))


async def restore(connection: Any) -> None:
    """Bring back what was lost, as it was, in the place of what was appended there meanwhile."""
    await connection.execute(RESTORE)
