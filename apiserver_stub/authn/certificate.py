"""Checks client certificates whose chain TLS has verified: which authorities are trusted, and expiry."""

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from apiserver_stub.common.streams import EndingStream, EndingUpgrade
from controller_manager.common.api.platform import ADMIN_GROUP
from controller_manager.common.api.wire import Certificate, Request, Response, Upgrade
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.serving.authentication import (
    Authenticator,
    RequestHeaderAuthenticator,
    RequestHeaderConfig,
)
from controller_manager.common.serving.trust import CLIENTS, PROXIES, Trust

_LONGEST = 60.0  # seconds between two checks of open responses
Handle = Callable[[Request], Awaitable[Response]]

SELF = Certificate("system:apiserver", (ADMIN_GROUP,))
"""Client certificate of the server's own requests, compared by identity."""


class ClientCertificates:
    """Checks client certificates on each request.

    A certificate that has expired, or whose authority was removed from `trust`, is no longer accepted on open
    connections, and its watches end. Without `trust`, the code that passes requests must verify certificates.
    """

    def __init__(self, trust: Trust | None = None) -> None:
        self._trust = trust
        self._open: WeakKeyDictionary[EndingStream | EndingUpgrade, Certificate] = WeakKeyDictionary()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        """The time of the alarm; a uvloop handle that is due does not report it."""
        if trust is not None:
            trust.subscribe(self._end_some)

    def believes(self, certificate: Certificate) -> bool:
        """Return whether a certificate is accepted now."""
        return self._trust is None or certificate is SELF or self._trust.believes(CLIENTS, certificate)

    def proxies(self, config: RequestHeaderConfig) -> Authenticator:
        """Return the authenticator for users named by a proxy, on connections with a certificate of a trusted proxy."""
        return RequestHeaderAuthenticator(self._trust or Trust(), config)

    def following(self, handle: Handle) -> Handle:
        """Return `handle` wrapped so that watches and other long responses end when their client certificate is no
        longer accepted.
        """
        if self._trust is None:
            return handle

        def followed(request: Request) -> Awaitable[Response]:
            certificate = request.certificate
            return handle(request) if certificate is None else self._answer(handle, request, certificate)

        return followed

    async def _answer(self, handle: Handle, request: Request, certificate: Certificate) -> Response:
        """Return the response to a request with a client certificate."""
        response = await handle(request)
        body = response.body
        if isinstance(body, bytes) or not self._counts(certificate):
            return response  # the certificate is not accepted, but a token was
        self._wake_at(certificate.expires)
        if isinstance(body, Upgrade):
            talk = EndingUpgrade(body)
            self._open[talk] = certificate
            return replace(response, body=Upgrade(body.protocol, talk.serve))
        left = certificate.expires - wall_seconds()
        stream = EndingStream(body, asyncio.get_running_loop().time() + left)
        self._open[stream] = certificate
        return replace(response, body=stream)

    def _counts(self, certificate: Certificate) -> bool:
        """Return whether a certificate is accepted now, as a client's or as a proxy's."""
        return self.believes(certificate) or (self._trust is not None and self._trust.believes(PROXIES, certificate))

    def _end_some(self) -> None:
        for answer, certificate in list(self._open.items()):
            if not self._counts(certificate):
                del self._open[answer]
                answer.end()
        if self._open:
            self._wake_at(min(certificate.expires for certificate in self._open.values()))

    def _wake_at(self, expiry: float) -> None:
        """Schedule a check of open responses when the first of their certificates expires, and at least once per
        `_LONGEST`, because clocks may jump.
        """
        loop = asyncio.get_running_loop()
        when = loop.time() + min(max(expiry - wall_seconds(), 0.0), _LONGEST)
        if self._alarm is not None and self._alarm_at > when:
            self._alarm.cancel()
            self._alarm = None
        if self._alarm is None:
            self._alarm, self._alarm_at = loop.call_at(when, self._ring), when

    def _ring(self) -> None:
        self._alarm = None
        self._end_some()
