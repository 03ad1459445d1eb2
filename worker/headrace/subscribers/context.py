"""What a handler may ask for besides its event: the connection, and the context of the call.

They are defined among the ports, because the engine hands them over; users and binding take them
from here.
"""

from headrace.ports.connection import Connection
from headrace.ports.subscribers import Context, HandlerValues, StopHere

__all__ = ["Connection", "Context", "HandlerValues", "StopHere"]
