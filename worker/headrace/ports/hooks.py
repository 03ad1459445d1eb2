"""The connection for set-up and teardown hooks: long, DDL, no transaction of the engine around it."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from headrace.ports.connection import Connection


class Hooks(Protocol):
    """Lends a connection to hooks."""

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """Open a connection whose statements commit one by one; deferred ones are sent at the end."""
        ...
