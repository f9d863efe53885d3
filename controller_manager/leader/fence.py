"""A transport that lets nobody but the leader write, however late a process notices that it no longer leads."""

from collections.abc import Callable

from controller_manager.api import errors
from controller_manager.api.wire import DuplexStream, Request, Response
from controller_manager.client import Transport


class FencedTransport:
    """Refuses whatever changes anything unless `leads()` is true right before it is sent.

    A leader's work is cancelled in time by its elector; this is for a process that was stopped or busy for so long
    that its work runs on before the elector had its turn.
    """

    def __init__(self, transport: Transport, leads: Callable[[], bool]) -> None:
        self._transport = transport
        self._leads = leads

    @property
    def host(self) -> str:
        """Return whom it talks to."""
        return self._transport.host

    @property
    def authorities(self) -> bytes:
        """Return whose certificates it believes the server by."""
        return self._transport.authorities

    async def send(self, request: Request) -> Response:
        """The answer. Raises `errors.Forbidden` for a write by one who does not lead."""
        self._check(request)
        return await self._transport.send(request)

    async def upgrade(self, request: Request) -> tuple[Response, DuplexStream | None]:
        """The answer, and the stream if the server agreed. Raises as `send`."""
        self._check(request)
        return await self._transport.upgrade(request)

    async def close(self) -> None:
        """Close the transport within."""
        await self._transport.close()

    def _check(self, request: Request) -> None:
        if request.method not in ("GET", "HEAD") and not self._leads():
            raise errors.Forbidden(f"{request.method} {request.path}: this process does not lead")
