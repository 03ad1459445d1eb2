"""Passing over an event that no partition key can be made for, in one transaction with its audit."""

from headrace.domain.errors import NotAllowed, NotFound
from headrace.domain.ids import Position
from headrace.domain.subscription import Status
from headrace.store.mapping import EventTable
from headrace.store.pool import Database
from headrace.store.sources import table_of


class PostgresSkipping:
    """Moves the cursor of a standing subscription over its next wanted event; ``table`` is the one most are of."""

    def __init__(self, database: Database, table: EventTable) -> None:
        self._database = database
        self._table = table

    async def pass_over(self, name: str, position: Position, who: str, why: str) -> None:
        """Pass the event at ``position`` over; audited.

        Raises:
            NotFound: there is no such subscription.
            NotAllowed: it is at work, has no keys, or ``position`` is not its next wanted event.

        """
        queries = self._database.queries
        lock = queries.render("pass_over_lock", ordered_reading=queries.fragment("ordered_reading"))
        async with self._database.session() as session, session.transaction():
            row = await session.fetchrow(queries.skip_main_lock, name)
            if row is None:
                raise NotFound(f"there is no subscription {name!r}: see `headrace status`")
            if not row["partitioned"]:
                raise NotAllowed(f"{name} has no keys: `headrace failures skip {name}` drops the event that fails")
            if Status(row["status"]).is_running:
                raise NotAllowed(
                    f"{name} is {row['status']}: an event is passed over only while the subscription stands still; "
                    "`headrace failures skip` drops the failing event of one key"
                )
            table = await table_of(session, self._table, name)
            move = queries.render("pass_over", events=table.events)
            cursor = await session.fetchrow(lock, row["run"])
            if cursor is None:
                raise NotAllowed(f"{name} was never set up: there is nothing to pass over")
            if await session.fetchval(move, row["run"], cursor["position"], position) is None:
                raise NotAllowed(
                    f"{position} is not the next event that {name} wants after {cursor['position']}: "
                    "`headrace status` names it"
                )
            await session.execute(queries.skip_main_record, row["run"], position, cursor["position"], who, why)
