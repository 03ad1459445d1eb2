"""The engine's ports in memory, for unit tests: a store without a database, time by hand, seeded chance.

Shipped with the package, used by tests alone: nothing that runs in production may import it. Every
twin passes the conformance suite that the PostgreSQL adapters pass.
"""
