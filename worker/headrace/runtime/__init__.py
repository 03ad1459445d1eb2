"""The composition root: what a process is made of, how it starts, works and ends.

Only here are settings, store, engine, subscribers and telemetry brought together. No rule of the engine lives here.
"""
