"""Three ways to fold a real event log, so that each number of a log is found at least twice.

Numbers are summed as text that the log holds, in SQL, so that no float rounds them.
"""

from collections import Counter
from decimal import Decimal
from typing import Any

from headrace import App, Bucket, Connection, Event, PartitionKey, Stream, batch, on, projector, setup

PER_STREAM = """
    insert into per_stream values ($1, 1, $2, $3, $4, $5::text::numeric, $6::text::numeric, $7::text::numeric,
                                   $8::text::numeric, true)
    on conflict (stream) do update set
        events = per_stream.events + 1, last_type = excluded.last_type,
        returns = per_stream.returns + excluded.returns, payments = per_stream.payments + excluded.payments,
        paid = coalesce(excluded.paid, per_stream.paid), amount = per_stream.amount + excluded.amount,
        expense = per_stream.expense + excluded.expense, executions = per_stream.executions + excluded.executions,
        in_order = per_stream.in_order and $9 = per_stream.events + 1
"""
PER_TYPE = """
    insert into per_type values ($1, $2, $3::numeric, $4, $5, $6)
    on conflict (bucket, type) do update set
        events = per_type.events + excluded.events, amount = per_type.amount + excluded.amount,
        expense = per_type.expense + excluded.expense, executions = per_type.executions + excluded.executions
"""
PER_GROUP = """
    insert into per_group values ($1, $2, $3)
    on conflict (bucket, name) do update set events = per_group.events + excluded.events
"""
WHOLE = """
    insert into whole_log (position, stream, type, grp, amount, expense, executions)
    values ($1, $2, $3, $4, $5::text::numeric, $6::text::numeric, $7::text::numeric)
"""


def number(event: Event[Any], name: str, of_type: str | None = None) -> str:
    """Return a field's number as the text that it has; ``0`` where there is none, or the type is another one."""
    return str(event.data.get(name, 0)) if of_type in (None, event.type) else "0"


@projector("per_stream", partition_by=Stream())
class PerStream:
    """What is known of each stream; event by event."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model."""
        await db.execute(
            'create table if not exists per_stream (stream text collate "C" primary key, events int, last_type text,'
            " returns int, payments int, paid numeric, amount numeric, expense numeric, executions numeric,"
            " in_order boolean)"
        )

    @on()
    async def see(self, event: Event[Any], key: PartitionKey, db: Connection) -> None:
        """Take one event."""
        is_payment = event.type == "Payment"
        db.defer(
            PER_STREAM,
            key,
            event.type,
            int(event.type == "Return ER"),
            int(is_payment),
            str(event.data["totalpaymentamount"]) if is_payment else None,
            number(event, "amount", "Create Fine"),
            number(event, "expense", "Send Fine"),
            number(event, "number_of_executions"),
            event.version,
        )


@projector("per_type", partition_by=Bucket(Stream(), 12))
class PerType:
    """What is known of each type and group; batch by batch."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read models."""
        await db.execute(
            'create table if not exists per_type (bucket text, type text collate "C", events int, amount numeric,'
            " expense numeric, executions numeric, primary key (bucket, type))"
        )
        await db.execute(
            "create table if not exists per_group (bucket text, name text, events int, primary key (bucket, name))"
        )

    @batch()
    async def fold(self, events: list[Event[Any]], db: Connection) -> None:
        """Take all that waits."""
        groups = Counter((str(event.key), str(event.data.get("group", ""))) for event in events)
        types: dict[tuple[str, str], list[Decimal]] = {}
        for event in events:
            sums = types.setdefault((str(event.key), event.type), [Decimal(0)] * 4)
            sums[0] += 1
            sums[1] += Decimal(number(event, "amount", "Create Fine"))
            sums[2] += Decimal(number(event, "expense", "Send Fine"))
            sums[3] += Decimal(number(event, "number_of_executions"))
        await db.executemany(PER_TYPE, [(*names, *sums) for names, sums in types.items()])
        await db.executemany(PER_GROUP, [(bucket, name, count) for (bucket, name), count in groups.items()])


@projector("whole_log")
class WholeLog:
    """The facts of every event, in global order."""

    @setup
    async def create(self, db: Connection) -> None:
        """Make the read model."""
        await db.execute(
            "create table if not exists whole_log (place bigint generated always as identity, position bigint unique,"
            ' stream text, type text collate "C", grp text, amount numeric, expense numeric, executions numeric)'
        )

    @on()
    async def note(self, event: Event[Any], db: Connection) -> None:
        """Take one event."""
        db.defer(
            WHOLE,
            event.position,
            event.stream,
            event.type,
            str(event.data.get("group", "")),
            number(event, "amount", "Create Fine"),
            number(event, "expense", "Send Fine"),
            number(event, "number_of_executions"),
        )


app = App(PerStream(), PerType(), WholeLog(), name="real_logs")
