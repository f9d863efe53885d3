"""The stream of a client connection after an upgrade."""

import asyncio
from collections.abc import Callable

from controller_manager.common.serving.limits import Backlog
from controller_manager.common.transport.duplex import SocketStream


class ClientStream(SocketStream):
    """A stream that begins with the `early` bytes. Unread data for the client counts as backlog.

    `ended` is called when the connection is lost and the stream is no longer used.
    """

    def __init__(self, transport: asyncio.Transport, early: bytes, backlog: Backlog, ended: Callable[[], None]) -> None:
        super().__init__(transport, early)
        self._backlog = backlog
        self._ended = ended
        self._is_over = False

    async def drained(self, held: int) -> None:
        """See `SocketStream`."""
        self._backlog.add(self, held, self.abort)
        try:
            await super().drained(held)
        finally:
            self._backlog.remove(self)

    def release(self) -> None:
        """Mark the stream as unused: the connection ends when the client has read the remaining data.

        `ended` is not called before, since it would cancel a handler that still reads data from the client.
        """
        self._is_over = True
        if self.is_lost:
            self._ended()

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        super().connection_lost(error)
        if self._is_over:
            self._ended()
