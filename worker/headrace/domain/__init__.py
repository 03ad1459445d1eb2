"""Values and rules of the engine, standard library only.

Everything here is immutable or a pure function: no clock, no randomness, no input or output. All
other rooms may import it; it imports none of them.
"""
