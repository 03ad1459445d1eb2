"""What must be true of the protocol's tables between any two transactions.

Read only, and each invariant in one snapshot, so it may be asked while everything runs. It reads
whole tables: for people and for tests, never for workers.
"""

from datetime import timedelta

from headrace.store.pool import Session

LONGEST_TTL = timedelta(hours=1)

INVARIANTS = (
    "check_backlog",
    "check_first_position",
    "check_leases_exist",
    "check_orphans",
    "check_positions",
    "check_counters",
    "check_attempts",
    "check_expiry",
    "check_cursors",
    "check_forever",
)
"""I1 to I10, in order."""


async def broken_invariants(session: Session, longest_ttl: timedelta = LONGEST_TTL) -> list[str]:
    """Return a sentence for each finding, by invariant; empty when all hold."""
    found: list[str] = []
    for name in INVARIANTS:
        arguments = (longest_ttl,) if name == "check_expiry" else ()
        found += [row["finding"] for row in await session.fetch(session.queries.get(name), *arguments)]
    return found
