"""Private names of the standard library in the supported Python versions; no other module uses private names.

The tests of this module fail if a Python version removes them.
"""

import asyncio
import ssl
import sys
from typing import Any


def awaited(task: "asyncio.Task[Any]") -> "asyncio.Future[Any] | None":
    """Return the future that a task awaits; None if the task has not started or is about to run."""
    future: asyncio.Future[Any] | None = getattr(task, "_fut_waiter", None)
    return future


def verified_chain(connection: ssl.SSLObject) -> list[bytes]:
    """Return the verified certificate chain (DER) of the peer, the root last.

    It is empty without a peer certificate and after a resumed session.
    """
    if sys.version_info >= (3, 13):
        return connection.get_verified_chain()
    import _ssl

    chain = connection._sslobj.get_verified_chain()  # type: ignore[attr-defined]
    return [certificate.public_bytes(_ssl.ENCODING_DER) for certificate in chain or ()]
