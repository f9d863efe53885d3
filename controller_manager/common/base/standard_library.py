"""Private names of the standard library in the supported versions of Python; nobody else uses such names.

Its tests fail where a version no longer has them.
"""

import asyncio
import ssl
import sys
from typing import Any


def awaited(task: "asyncio.Task[Any]") -> "asyncio.Future[Any] | None":
    """The future that wakes a task; None if the task has not begun, or is about to run."""
    future: asyncio.Future[Any] | None = getattr(task, "_fut_waiter", None)
    return future


def verified_chain(connection: ssl.SSLObject) -> list[bytes]:
    """The chain (DER) by which the certificate of the other side was verified, its authority last.

    It is empty without a certificate, and after a session was resumed.
    """
    if sys.version_info >= (3, 13):
        return connection.get_verified_chain()
    import _ssl

    chain = connection._sslobj.get_verified_chain()  # type: ignore[attr-defined]
    return [certificate.public_bytes(_ssl.ENCODING_DER) for certificate in chain or ()]
