"""The seam between those who need a connection and those who know how servers are reached.

Without a dialer, who needs a connection opens it itself; with one, it gets a socket and knows no more. TLS with the
server, and whatever is said, is up to who asked.
"""

import socket
from typing import Protocol


class Dialer(Protocol):
    """Reaches servers."""

    async def dial(self, host: str, port: int) -> socket.socket:
        """Return a connected, non-blocking stream socket at whose other end is that server; a name is resolved where
        the connection begins. The caller closes it. Raises OSError.
        """
