"""A transport that hands each request to a server in the same process: no socket, works in virtual time."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from controller_manager.api.wire import Certificate, Request, Response

Handle = Callable[[Request], Awaitable[Response]]


class InProcessTransport:
    """Calls `handle`, as the holder of `token`, of `certificate`, or of nothing."""

    host = "in-process"

    def __init__(self, handle: Handle, *, token: str = "", certificate: Certificate | None = None) -> None:
        self._handle = handle
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._certificate = certificate

    async def send(self, request: Request) -> Response:
        """The answer, with a streamed body passed through."""
        headers = {**request.headers, **self._headers}
        return await self._handle(replace(request, headers=headers, certificate=self._certificate))

    async def close(self) -> None:
        """There is nothing to give back."""
