"""The user's code: how it is declared, checked, bound and found.

A subscriber stays a normal class. Everything that can be wrong with it is said before a database
is touched, by class, method and parameter; at call time nothing is inspected any more. Nothing
here runs a handler, a thread or a statement: the engine does.
"""
