"""From an event to the key whose events must stay in order.

Pure: the same event gives the same key in every process, on every machine and in PostgreSQL. A key
is made once, by the router; nothing here knows what happens to it afterwards.
"""
