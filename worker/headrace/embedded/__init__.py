"""Throw-away PostgreSQL clusters for the demo, for development and for tests; subprocess only, no driver.

`programs.find_programs` says which PostgreSQL is used, `cluster.Cluster` runs one. A cluster belongs to the process
that started it: whatever becomes of that process, the server ends and its folder goes. Never use it for data that
matters: there is no password, and by default nothing is flushed to the disk.
"""
