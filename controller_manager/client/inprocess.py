"""A transport that hands each request to a server in the same process: no socket, works in virtual time."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from controller_manager.api.wire import Certificate, Request, Response
from controller_manager.client.config import Identity
from controller_manager.client.credentials import Credential, Credentials, Obtain, from_identity

Handle = Callable[[Request], Awaitable[Response]]


class InProcessTransport:
    """Calls `handle`, as the holder of `token` or what `obtain` gives, of `certificate`, or of nothing."""

    host = "in-process"
    authorities = b""

    def __init__(
        self,
        handle: Handle,
        *,
        token: str = "",
        certificate: Certificate | None = None,
        obtain: Obtain | None = None,
    ) -> None:
        self._handle = handle
        self._credentials = Credentials(obtain or from_identity(Identity(token=token)))
        self._certificate = certificate

    async def send(self, request: Request) -> Response:
        """The answer, with a streamed body passed through; one of 401 is asked for again with renewed credentials.

        Raises `TransportError` when there are no credentials to be had.
        """
        return await self._credentials.send(request, self._exchange)

    async def _exchange(self, request: Request, credential: Credential) -> Response:
        shown = {"authorization": f"Bearer {credential.token}"} if credential.token else {}
        return await self._handle(replace(request, headers={**request.headers, **shown}, certificate=self._certificate))

    async def close(self) -> None:
        """There is nothing to give back."""
