"""Which client certificates are believed, of those whose chain the TLS layer has verified, and for how long."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Self
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from controller_manager.api.platform import ADMIN_GROUP
from controller_manager.api.wire import Certificate, Request, Response, Upgrade
from controller_manager.base.clock import wall_seconds
from controller_manager.serving.trust import CLIENTS, Trust

_LONGEST = 60.0  # seconds between two looks at open answers
Handle = Callable[[Request], Awaitable[Response]]

SELF = Certificate("system:apiserver", (ADMIN_GROUP,))
"""Shown by the server to itself, as this very value."""


class _Lasting(AsyncIterator[bytes]):
    """The chunks of an answer until somebody ends it, whatever it waits for then.

    `ends_at` is the time of the loop when it is over, taken by its reader or not.
    """

    def __init__(self, body: AsyncIterator[bytes], ends_at: float) -> None:
        self._body = body
        self.ends_at = min(ends_at, getattr(body, "ends_at", math.inf))
        self._reader: asyncio.Task[object] | None = None
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._ended:
            raise StopAsyncIteration
        self._reader = reader = asyncio.current_task()
        try:
            return await anext(self._body)
        except asyncio.CancelledError:
            if self._ended and reader is not None and reader.uncancel() == 0:
                raise StopAsyncIteration from None
            raise
        finally:
            self._reader = None

    def end(self) -> None:
        """Say nothing more."""
        self._ended = True
        if self._reader is not None:
            self._reader.cancel()

    async def aclose(self) -> None:
        """Give up what is behind it."""
        if aclose := getattr(self._body, "aclose", None):
            await aclose()


class ClientCertificates:
    """Judges client certificates at each request.

    A certificate that has expired, or whose authority is in `trust` no more, is believed no longer on connections that
    are open, and their watches end. Without `trust` whoever hands over requests answers for their certificates.
    """

    def __init__(self, trust: Trust | None = None) -> None:
        self._trust = trust
        self._open: WeakKeyDictionary[_Lasting, Certificate] = WeakKeyDictionary()
        self._alarm: asyncio.TimerHandle | None = None
        if trust is not None:
            trust.subscribe(self._end_some)

    def believes(self, certificate: Certificate) -> bool:
        """Tell whether a certificate is believed now."""
        return self._trust is None or certificate is SELF or self._trust.believes(CLIENTS, certificate)

    def following(self, handle: Handle) -> Handle:
        """`handle`, whose watches and other long answers last no longer than the certificate is believed that they
        were asked for with.
        """
        if self._trust is None:
            return handle

        async def followed(request: Request) -> Response:
            response = await handle(request)
            certificate = request.certificate
            if certificate is None or isinstance(response.body, bytes | Upgrade) or not self.believes(certificate):
                return response  # a token was shown beside one that is not believed
            left = certificate.expires - wall_seconds()
            lasting = _Lasting(response.body, asyncio.get_running_loop().time() + left)
            self._open[lasting] = certificate
            self._wake_at(certificate.expires)
            return replace(response, body=lasting)

        return followed

    def _end_some(self) -> None:
        for answer, certificate in list(self._open.items()):
            if not self.believes(certificate):
                del self._open[answer]
                answer.end()
        if self._open:
            self._wake_at(min(certificate.expires for certificate in self._open.values()))

    def _wake_at(self, expiry: float) -> None:
        """Look at open answers again when the first of their certificates expires, and now and then: clocks jump."""
        loop = asyncio.get_running_loop()
        when = loop.time() + min(max(expiry - wall_seconds(), 0.0), _LONGEST)
        if self._alarm is not None and self._alarm.when() > when:
            self._alarm.cancel()
            self._alarm = None
        if self._alarm is None:
            self._alarm = loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._end_some()
