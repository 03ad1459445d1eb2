"""The testing kit: a throw-away database, and runs of subscribers on it or in memory, for tests of applications.

It puts together what the runtime puts together, so it may import every room; the in-memory ports beside it may not.
The pytest plugin loads it when a test asks for one of its fixtures, and nothing of it before.
"""
