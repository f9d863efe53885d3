"""The interface between code that needs a connection and code that knows how to reach servers.

Without a dialer, code opens connections itself. With one, it gets a connected socket; TLS and the protocol are up to
the caller.
"""

import socket
from typing import Protocol


class Dialer(Protocol):
    """Opens connections to servers."""

    async def dial(self, host: str, port: int) -> socket.socket:
        """Return a connected, non-blocking stream socket to a server. The name is resolved where the connection starts,
        for example on a proxy. The caller closes the socket. Raises OSError.
        """
