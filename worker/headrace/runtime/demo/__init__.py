"""The demonstration: a generated shop, four subscribers, two worker processes, and a verdict by plain SQL.

It uses the product as anybody would, through the command line and the published tables, on a PostgreSQL of its own.
"""
