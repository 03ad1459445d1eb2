"""For tests: the engine's ports in memory, and the kit that applications are tested with.

The ports in memory are a store without a database, time by hand, seeded chance; every one passes the conformance suite
that the PostgreSQL adapter passes. The kit (`kit/`, and the pytest plugin over it) runs subscribers on them, or on a
throw-away database. Shipped with the package, used by tests alone: nothing that runs in production may import it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# Looked up when asked for: pytest loads the plugin beside this in every run, asked for or not.
if TYPE_CHECKING:
    from headrace.testing.clock import ManualClock
    from headrace.testing.connection import Statement
    from headrace.testing.events import recorded
    from headrace.testing.kit.database_run import DatabaseRun
    from headrace.testing.kit.memory_run import MemoryRun
    from headrace.testing.kit.runs import HandlersFailed
else:
    _HOMES = {
        "DatabaseRun": "kit.database_run",
        "HandlersFailed": "kit.runs",
        "ManualClock": "clock",
        "MemoryRun": "kit.memory_run",
        "Statement": "connection",
        "recorded": "events",
    }

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            globals()[name] = found = getattr(import_module(f"headrace.testing.{_HOMES[name]}"), name)
            return found
        raise AttributeError(f"module 'headrace.testing' has no attribute {name!r}")


__all__ = ["DatabaseRun", "HandlersFailed", "ManualClock", "MemoryRun", "Statement", "recorded"]
