"""The engine: routes, claims, handles, flushes, keeps leases. Knows only ports.

Every loop here is a duty owned by one supervisor (``engine.py``); nothing starts a task anywhere
else. It never reads settings, never writes a log line, never sees the database driver.
"""
