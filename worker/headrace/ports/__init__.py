"""Narrow protocols between the engine and the world.

The engine knows only these. Each has a PostgreSQL form in ``store`` (or ``runtime``) and a shipped
in-memory twin in ``testing``; one conformance suite holds the two equal.
"""
