"""The command line `headrace`: options to values, results to words.

Commands hold no rule of the engine: they read settings, call what does the work and say what came of it. One message
with the fix for every error, one exit code for every outcome, plain text when piped.
"""
