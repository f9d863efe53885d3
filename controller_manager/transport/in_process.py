"""A transport that hands each request to a server in the same process: no socket, works in virtual time."""

from collections.abc import Awaitable, Callable
from functools import partial

from msgspec.structs import replace

from controller_manager.api.wire import Certificate, Request, Response, Upgrade, check_offered
from controller_manager.base.log import get_logger
from controller_manager.base.tasks import Tasks, contain
from controller_manager.transport.duplex import PipeStream, pipe, serve_upgrade
from controller_manager.transport.transport import NO_CREDENTIAL, Credential, UnaskedUpgrade, with_offer

_LOG = get_logger("in-process")
Handle = Callable[[Request], Awaitable[Response]]


class HandlerTransport:
    """Calls `handle`, as the holder of `certificate` or of none."""

    host = "in-process"
    authorities = b""

    def __init__(self, handle: Handle, certificate: Certificate | None = None) -> None:
        self._handle = handle
        self._certificate = certificate
        self._upgrades: Tasks | None = None
        self._streams: set[PipeStream] = set()

    async def send(self, request: Request, credential: Credential = NO_CREDENTIAL) -> Response:
        """The answer, with a streamed body passed through."""
        response = await self._exchange(request, credential)
        if isinstance(response.body, Upgrade):
            raise UnaskedUpgrade
        return response

    async def upgrade(
        self, request: Request, credential: Credential = NO_CREDENTIAL
    ) -> tuple[Response, PipeStream | None]:
        """See `Transport`; the stream is a pair of pipes in memory, at whose other end the server talks."""
        offer = with_offer(request)
        response = await self._exchange(offer, credential)
        check_offered(offer, response)
        upgrade = response.body
        if not isinstance(upgrade, Upgrade):
            return response, None
        if self._upgrades is None:
            self._upgrades = await Tasks().__aenter__()
        ours, theirs = pipe()
        self._streams.add(ours)
        talk = self._upgrades.start(
            contain(partial(serve_upgrade, upgrade, theirs), _LOG, name="upgrade"), name="upgrade"
        )
        talk.add_done_callback(lambda _: self._streams.discard(ours))
        return Response(101, {**response.headers, "upgrade": upgrade.protocol}), ours

    async def _exchange(self, request: Request, credential: Credential) -> Response:
        headers = credential.headers(request)
        return await self._handle(replace(request, headers=headers, certificate=self._certificate))

    async def close(self) -> None:
        """Break the streams; there is nothing else to give back."""
        for stream in tuple(self._streams):
            stream.abort()
        if self._upgrades is not None:
            upgrades, self._upgrades = self._upgrades, None
            await upgrades.__aexit__(None, None, None)
