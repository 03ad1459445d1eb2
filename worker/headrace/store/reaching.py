"""The way to a server: what a DSN may be, and what it means when no connection comes of it.

A server that does not answer may do so later, so it is worth waiting for. A DSN, a certificate or a server without TLS
stays wrong until a person mends it. Of a DSN only its scheme and its files are ever shown: it may hold a password.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, urlsplit

import asyncpg

from headrace.domain.errors import Unavailable, UsageError
from headrace.store.errors import translated

_NO_PORT = (
    "the DSN cannot be used: what stands for its port is no number; "
    "in a password write / ? # @ : as %2F %3F %23 %40 %3A"
)
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_NOT_OF_THIS_HOST = {62, 64}
"""OpenSSL's codes: the certificate is for other host names, or for other addresses."""


def checked_dsn(dsn: str) -> str:
    """Return a DSN that names a PostgreSQL server by TCP or unix socket.

    Raises:
        UsageError: it does not, or names a file that cannot be read.

    """
    scheme, separator, _ = dsn.partition("://")
    if not separator or scheme not in {"postgresql", "postgres"}:
        raise UsageError(
            "the DSN must look like postgresql://user@host:5432/database"
            + (f", not like {scheme}://…" if separator and scheme.isalnum() else "")
            + " (HEADRACE_DSN or --dsn)"
        )
    # The driver would only say that some file is not there.
    for name, path in parse_qsl(urlsplit(dsn).query):
        if name in _FILES and not os.access(path, os.R_OK):
            raise UsageError(f"the DSN cannot be used: {name}={path} is no file that can be read")
    return dsn


@contextmanager
def reaching() -> Iterator[None]:
    """Run a block that connects: what goes wrong there is an unreachable server or a wrong DSN.

    Raises:
        Unavailable: the server cannot be reached now.
        UsageError: it never will be with this DSN.

    """
    try:
        with translated():
            yield
    except ssl.SSLCertVerificationError as error:
        raise UsageError(_mistrust(error)) from error
    except ssl.SSLError as error:
        if error.library in {"X509", "PEM"}:
            raise UsageError(
                f"the DSN cannot be used: no certificate or key is in a file that it names ({error.reason}); "
                f"correct {', '.join(_FILES)}"
            ) from error
        raise Unavailable(f"the database cannot be reached by TLS: {error}") from error
    except (OSError, TimeoutError) as error:
        why = str(error) or "no answer, or no connection free"
        raise Unavailable(f"the database cannot be reached: {why}") from error
    except asyncpg.PostgresError as error:
        raise UsageError(f"the database refuses the connection: {error}; correct the DSN") from error
    except ValueError as error:
        # Not its text, and not as the cause: a password that was not escaped is read as a port, and stands in both.
        raise UsageError(_NO_PORT if "int()" in str(error) else f"the DSN cannot be used: {error}") from None


def _mistrust(error: ssl.SSLCertVerificationError) -> str:
    why = error.verify_message.rstrip(".")
    if error.verify_code in _NOT_OF_THIS_HOST:
        return (
            f"the certificate of the database is not for this host: {why}; correct the host of the DSN, or give the "
            "server a certificate for it"
        )
    return (
        f"the certificate of the database is not trusted: {why}; name the file of the authority that has signed it "
        "with sslrootcert= in the DSN"
    )
