"""Transports that send credentials and renew them; the transport over a network is in `http_transport`."""

from typing import Protocol

from controller_manager.common.api.wire import Certificate, DuplexStream, Request, Response
from controller_manager.common.transport.config import ClientIdentity
from controller_manager.common.transport.credentials import Credentials, Obtain, from_identity
from controller_manager.common.transport.transport import Credential, Handle, HandlerTransport


class CredentialedTransport(Protocol):
    """A transport that gets a credential with each request."""

    host: str

    @property
    def authorities(self) -> bytes:
        """See `Transport`."""

    async def send(self, request: Request, credential: Credential) -> Response:
        """See `Transport`."""

    async def upgrade(self, request: Request, credential: Credential) -> tuple[Response, DuplexStream | None]:
        """See `Transport`."""

    async def close(self) -> None:
        """See `Transport`."""


class AuthenticatedTransport:
    """Sends each request with the credential from `obtain`. After a 401 it retries once with a renewed credential."""

    def __init__(self, inner: CredentialedTransport, obtain: Obtain) -> None:
        self.host = inner.host
        self._inner = inner
        self._credentials = Credentials(obtain)

    @property
    def authorities(self) -> bytes:
        """See `Transport`."""
        return self._inner.authorities

    async def send(self, request: Request) -> Response:
        """See `Transport`. Raises `TransportError` also if no credentials are available."""
        return await self._credentials.send(request, self._inner.send)

    async def upgrade(self, request: Request) -> tuple[Response, DuplexStream | None]:
        """See `Transport`. Raises like `send`."""
        opened: DuplexStream | None = None

        async def exchange(request: Request, credential: Credential) -> Response:
            nonlocal opened
            response, opened = await self._inner.upgrade(request, credential)
            return response

        return await self._credentials.send(request, exchange), opened

    async def close(self) -> None:
        """See `Transport`."""
        await self._inner.close()


class InProcessTransport(AuthenticatedTransport):
    """Passes each request to `handle` in this process; works in virtual time.

    The client is the owner of `token`, of the credential from `obtain`, or of `certificate`, or it is anonymous.
    """

    def __init__(
        self,
        handle: Handle,
        *,
        token: str = "",
        certificate: Certificate | None = None,
        obtain: Obtain | None = None,
    ) -> None:
        super().__init__(HandlerTransport(handle, certificate), obtain or from_identity(ClientIdentity(token=token)))
