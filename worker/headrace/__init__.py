"""Headrace: events in PostgreSQL, routed once to the partition they belong to, each partition worked in order."""

__version__ = "0.1.0"
