"""The stream of a client that left HTTP for another protocol."""

import asyncio
from collections.abc import Callable

from controller_manager.common.serving.limits import Backlog
from controller_manager.common.transport.duplex import SocketStream


class ClientStream(SocketStream):
    """What came `early`, and all else of a connection; what its client does not take is part of the backlog.

    `ended` is called once the connection is lost and nobody uses the stream any more.
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
        """Nobody uses the stream any more: the connection ends, now or as soon as the client has taken the rest.

        It is not told before, since it would then cancel whoever still reads what the client has sent.
        """
        self._is_over = True
        if self.is_lost:
            self._ended()

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        super().connection_lost(error)
        if self._is_over:
            self._ended()
