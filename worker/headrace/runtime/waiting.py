"""Waiting from outside of a worker until a subscription has come to a position.

Asks the database again and again, as a worker's engine does for its own subscriptions; it moves nothing.
"""

from headrace.domain.ids import Position
from headrace.engine import arrival
from headrace.engine.horizon import HorizonService
from headrace.engine.tracked import Ports
from headrace.runtime.operations import Operations
from headrace.runtime.system import SystemIdentity, SystemRandomness
from headrace.store.events import PostgresEvents
from headrace.store.hooks import PostgresHooks
from headrace.store.horizon import PostgresHorizon
from headrace.store.routing import PostgresRouting
from headrace.store.work import PostgresWork
from headrace.telemetry.lines import LogObserver


async def wait_for(
    operations: Operations, name: str, position: int | None, key: str | None, timeout: float | None
) -> None:
    """Return when a subscription has handled everything up to ``position`` (default: all there is now).

    Raises:
        NotFinished: ``timeout`` seconds went by; the message says what stands in the way.
        NotFound: there is no such subscription.
        UsageError: its mapped event table is gone.

    """
    operations = await operations.reading(name)
    database, table, observer = operations.database, operations.table, LogObserver()
    ports = Ports(
        reader=PostgresEvents(database, table),
        routing=PostgresRouting(database, table),
        work=PostgresWork(database, table, SystemIdentity()),
        catalog=operations.catalog,
        hooks=PostgresHooks(database),
        clock=operations.clock,
        randomness=SystemRandomness(),
        observer=observer,
    )
    horizon = HorizonService(PostgresHorizon(database, table), operations.clock, observer, exact=table.mapping.exact)
    await horizon.start()
    wanted = None if position is None else Position(position)
    await arrival.wait_for(ports, horizon, name, wanted, timeout, key)
