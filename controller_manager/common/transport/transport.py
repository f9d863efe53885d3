"""Transports carry a request to a server and return the response, over a network or within one process."""

import math
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from controller_manager.common.api.wire import (
    Certificate,
    DuplexStream,
    Request,
    Response,
    Upgrade,
    check_offered,
    with_headers,
)
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.base.files import memory_file
from controller_manager.common.base.log import get_logger
from controller_manager.common.base.tasks import Tasks, contain
from controller_manager.common.transport.duplex import PipeStream, pipe, serve_upgrade

LARGEST_BODY = 1 << 30
IMPERSONATE_USER = "impersonate-user"
_DIGITS = 18
_EARLY = 60.0  # seconds


class ConfigError(CannotStart, ValueError):
    """The client configuration is unusable; the message is one sentence naming the file and the field."""


class TransportError(ConnectionError):
    """No complete response arrived: the server is unreachable, disconnected, timed out or sent invalid data."""


class UnaskedUpgrade(TransportError):
    """The server switched protocols without an offer from the client."""

    def __init__(self) -> None:
        super().__init__("the server switched to a protocol that was not requested")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a server: its URL, and how to verify its certificate. An empty `ca` (PEM) means the CA
    certificates of the system; a client reloads `ca_file` while it runs.
    """

    server: str
    ca: bytes = field(default=b"", repr=False)
    insecure: bool = False
    tls_server_name: str = ""
    proxy_url: str = field(default="", repr=False)
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential; times are wall seconds. Two are equal if they prove the same identity.

    `impersonate` holds the impersonation headers.
    """

    token: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    renew_at: float = field(default=math.inf, compare=False)
    expires: float = field(default=math.inf, compare=False)
    impersonate: tuple[tuple[str, str], ...] = ()

    @classmethod
    def until(cls, expires: float, now: float, *, token: str, certificate: bytes, key: bytes) -> "Credential":
        """Return a credential that is renewed a minute before it expires, or after 3/4 of a short lifetime."""
        renew_at = expires - min(_EARLY, max(expires - now, 0.0) / 4) if math.isfinite(expires) else expires
        return cls(token=token, certificate=certificate, key=key, renew_at=renew_at, expires=expires)

    def sign(self, request: Request) -> Request:
        """Return the request with the bearer token, if any (RFC 6750, section 2.1), and with the impersonation headers,
        unless the request has its own.
        """
        if self.token:
            request = replace(request, headers={**request.headers, "authorization": f"Bearer {self.token}"})
        if self.impersonate and IMPERSONATE_USER not in request.headers:
            request = with_headers(request, self.impersonate)
        return request


NO_CREDENTIAL = Credential()


class Transport(Protocol):
    """Carries requests. An error response of the API is a response, not an exception."""

    @property
    def host(self) -> str:
        """Return the host and port of the server, for metrics."""

    @property
    def authorities(self) -> bytes:
        """Return the CA certificates (PEM) that verify the server; empty for those of the system, or without
        TLS.
        """

    async def send(self, request: Request) -> Response:
        """Return the response; the body of a watch is a stream. Raises `TransportError`."""

    async def upgrade(self, request: Request) -> tuple[Response, DuplexStream | None]:
        """Return the response, and if its status is 101 the stream on its own connection (RFC 9110, section 7.8).

        The request offers protocols in its `upgrade` header. Any other response is like that of `send`. Raises
        `TransportError`.
        """

    async def close(self) -> None:
        """Close every connection; running requests fail and streams break."""


def is_watch(request: Request) -> bool:
    """Return whether the response is an endless stream."""
    return any(name == "watch" and value not in ("0", "false") for name, value in request.query)


def with_offer(request: Request) -> Request:
    """Return the request with the header that makes its `upgrade` header effective. Raises ValueError without one."""
    if not request.headers.get("upgrade"):
        raise ValueError("the request offers no protocol in an upgrade header")
    return replace(request, headers={**request.headers, "connection": "upgrade"})


async def whole_body(response: Response) -> bytes:
    """Return the whole body of a response, at most 1 GiB."""
    if isinstance(response.body, bytes):
        return response.body
    if isinstance(response.body, Upgrade):
        raise UnaskedUpgrade
    chunks, size = [], 0
    try:
        async for chunk in response.body:
            size += len(chunk)
            if size > LARGEST_BODY:
                raise TransportError(f"the answer is larger than {LARGEST_BODY} bytes")
            chunks.append(chunk)
    finally:
        await close_body(response)
    return b"".join(chunks)


async def close_body(response: Response) -> None:
    """Stop reading: notify the sender of a streamed body."""
    close = getattr(response.body, "aclose", None)
    if close is not None:
        await close()


_LOG = get_logger("in-process")
Handle = Callable[[Request], Awaitable[Response]]


class HandlerTransport:
    """Calls `handle` as the owner of `certificate`, or anonymously."""

    host = "in-process"
    authorities = b""

    def __init__(self, handle: Handle, certificate: Certificate | None = None) -> None:
        self._handle = handle
        self._certificate = certificate
        self._upgrades: Tasks | None = None
        self._streams: set[PipeStream] = set()

    async def send(self, request: Request, credential: Credential = NO_CREDENTIAL) -> Response:
        """Return the response; a streamed body is passed through."""
        response = await self._exchange(request, credential)
        if isinstance(response.body, Upgrade):
            raise UnaskedUpgrade
        return response

    async def upgrade(
        self, request: Request, credential: Credential = NO_CREDENTIAL
    ) -> tuple[Response, PipeStream | None]:
        """See `Transport`; the stream is an in-memory pipe to the server."""
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
        return await self._handle(replace(credential.sign(request), certificate=self._certificate))

    async def close(self) -> None:
        """Break the streams."""
        for stream in tuple(self._streams):
            stream.abort()
        if self._upgrades is not None:
            upgrades, self._upgrades = self._upgrades, None
            await upgrades.__aexit__(None, None, None)


def known_length(response: Response) -> int | None:
    """Return the content length of a response in bytes; None if it is unknown."""
    length = response.headers.get("content-length", "")
    return int(length) if len(length) < _DIGITS and length.isascii() and length.isdigit() else None


def client_context(endpoint: Endpoint, certificate: bytes, key: bytes) -> ssl.SSLContext:
    """Return a context that trusts the CA certificates of an endpoint and sends `certificate` (PEM, with `key`), if
    any.
    """
    try:
        # Only comments may contain non-ASCII characters, which `ssl` rejects.
        authorities = endpoint.ca.decode("ascii", "ignore") if endpoint.ca else None
        if authorities is None and endpoint.insecure:  # loading those of the system takes a tenth of a second
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        else:
            context = ssl.create_default_context(cadata=authorities)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"certificate-authority of {endpoint.server} holds no usable PEM certificate") from error
    # Newer Python versions require extensions that the CA certificates of many clusters lack.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if endpoint.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        _show(context, certificate, key)
    return context


def is_of_tls(error: BaseException | None) -> bool:
    """Return whether an error was caused by TLS, through any library."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__
    return error is not None


def _show(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    try:
        with memory_file(certificate + b"\n" + key) as pair:
            context.load_cert_chain(pair, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError("client-certificate and client-key must be a matching, unencrypted PEM pair") from error
