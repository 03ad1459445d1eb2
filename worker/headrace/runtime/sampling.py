"""Gauges of the worker's subscriptions: a look at the published statistics every few seconds.

A look that fails is only missed: the gauges vanish by themselves when looks are missing for a minute. It has one
connection of its own, so that it never waits for lanes, nor they for it.
"""

import asyncio
from collections.abc import Sequence

from headrace.domain.errors import HeadraceError
from headrace.ports.status import Standing
from headrace.settings import Settings
from headrace.store.pool import Database
from headrace.store.status import PostgresStatus
from headrace.telemetry.logs import logger
from headrace.telemetry.metrics import Metrics, Sample

SAMPLE_SECONDS = 10.0
RETRY_SECONDS = 5.0


async def keep_sampling(dsn: str, settings: Settings, names: Sequence[str], metrics: Metrics) -> None:
    """Show samples until cancelled, however often the database goes away."""
    while True:
        try:
            database = await Database.open(
                dsn,
                schema=settings.schema_name,
                max_size=1,
                application_name="headrace gauges",
                pooler=settings.pooler,
            )
            async with database:
                await _sample(PostgresStatus(database), names, metrics)
        except HeadraceError as error:
            logger("headrace.worker").debug("the gauges could not be read", error=str(error))
        await asyncio.sleep(RETRY_SECONDS)


async def _sample(status: PostgresStatus, names: Sequence[str], metrics: Metrics) -> None:
    while True:
        metrics.show([sample_of(standing) for standing in await status.standings(names)])
        await asyncio.sleep(SAMPLE_SECONDS)


def sample_of(standing: Standing) -> Sample:
    """Return the gauges of one subscription."""
    return Sample(
        subscription=standing.subscription,
        backlog=standing.backlog,
        unrouted=standing.unrouted,
        # Nothing that is due is nothing late.
        lag_seconds=0.0 if standing.oldest_seconds is None and standing.backlog == 0 else standing.oldest_seconds,
        parked_keys=standing.parked,
        horizon_held_seconds=standing.horizon_held_seconds,
    )
