"""Observers of the engine: metrics, logs, and the fan-out that keeps one from hurting another.

They turn facts into figures and lines and do nothing else: no database, no decision, and never an exception back
into the engine. Labels and lines are bounded: a subscription is a label, a key never is.
"""
