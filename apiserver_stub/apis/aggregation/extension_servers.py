"""Extension API servers behind APIServices: their addresses, TLS verification, and short requests to them."""

import asyncio
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec

from apiserver_stub.apis.aggregation.api_services import APIService
from apiserver_stub.apis.aggregation.front_proxy import ProxyPair, in_the_name_of
from apiserver_stub.webhooks.service_resolver import ServiceResolver
from controller_manager.common.api.errors import ServiceUnavailable
from controller_manager.common.api.platform import ADMIN_GROUP
from controller_manager.common.api.wire import Request, Response, Upgrade
from controller_manager.common.serving.authentication import User
from controller_manager.common.transport.connection_pool import ConnectionTarget
from controller_manager.common.transport.dialer import Dialer
from controller_manager.common.transport.streaming import StreamingTransport
from controller_manager.common.transport.transport import (
    Endpoint,
    TransportError,
    client_context,
    close_body,
    known_length,
)

_SMALL = 64 * 1024  # bytes
AGGREGATOR = User("system:kube-aggregator", groups=(ADMIN_GROUP,))
"""The user of availability checks and discovery requests."""


class Answer(msgspec.Struct, frozen=True):
    """The complete response to a short request."""

    status: int
    media_type: str
    etag: str
    body: bytes


class ExtensionServers:
    """Resolves APIServices to connection targets. A changed CA or certificate makes a new target. Without a `dialer`,
    connections are direct.
    """

    def __init__(self, resolver: ServiceResolver, pair: ProxyPair, dialer: Dialer | None = None) -> None:
        self.transport = StreamingTransport(dialer=dialer)
        self._resolver = resolver
        self._pair = pair
        self._contexts: dict[str, tuple[object, ssl.SSLContext]] = {}

    async def close(self) -> None:
        """Close all connections."""
        await self.transport.close()

    def origin(self, service: APIService) -> ConnectionTarget:
        """Return the connection target of an APIService's server.

        Raises `NotFound` or `ServiceUnavailable` if its service cannot be resolved, and `ConfigError` for an invalid
        caBundle.
        """
        reference = service.spec.service
        if reference is None:
            raise ServiceUnavailable(f"{service.name} has no service")
        host, port, name = self._resolver.resolve(reference.namespace, reference.name, reference.port)
        return ConnectionTarget(host, port, self._context(service), name)

    def forget(self, name: str) -> None:
        """Drop the cached data of a deleted APIService."""
        self._contexts.pop(name, None)

    async def ask(
        self, service: APIService, path: str, *, seconds: float, largest: int, user: User = AGGREGATOR,
        accept: str = "", etag: str = "",
    ) -> Answer:  # fmt: skip
        """Return the response to a GET with limits in seconds and bytes.

        Raises `TransportError` and the errors of `origin`.
        """
        conditional = {"accept": accept, "if-none-match": etag}
        headers = {name: value for name, value in conditional.items() if value}
        async with _within(seconds):
            response = await self._get(service, path, user, headers)
            body = await _read(response, largest)
        media, etag = (response.headers.get(name, "") for name in ("content-type", "etag"))
        return Answer(response.status, media, etag, body)

    async def status(self, service: APIService, path: str, *, seconds: float) -> int:
        """Return the status code of a GET with a timeout in seconds. Raises the errors of `ask`."""
        async with _within(seconds):
            response = await self._get(service, path, AGGREGATOR, {})
            if (known_length(response) or _SMALL + 1) <= _SMALL:
                await _read(response, _SMALL)  # so that the connection can be reused
            else:
                await close_body(response)
            return response.status

    async def _get(self, service: APIService, path: str, user: User, headers: Mapping[str, str]) -> Response:
        request = in_the_name_of(user, Request("GET", path, (), headers))
        return await self.transport.send(self.origin(service), request)

    def _context(self, service: APIService) -> ssl.SSLContext:
        spec, pair = service.spec, self._pair()
        proved = (spec.ca_bundle, spec.insecure_skip_tls_verify, pair)
        kept = self._contexts.get(service.name)
        if kept is not None and kept[0] == proved:
            return kept[1]
        endpoint = Endpoint(service.name, b64decode(spec.ca_bundle or ""), spec.insecure_skip_tls_verify)
        context = client_context(endpoint, *((pair.certificate, pair.key) if pair else (b"", b"")))
        self._contexts[service.name] = proved, context
        return context


@asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TransportError(f"no answer within {seconds:.0f} seconds") from None


async def _read(response: Response, largest: int) -> bytes:
    if isinstance(response.body, bytes):
        return response.body
    assert not isinstance(response.body, Upgrade)
    parts, size = [], 0
    try:
        async for part in response.body:
            parts.append(part)
            size += len(part)
            if size > largest:
                raise TransportError(f"the answer is larger than {largest} bytes")
    finally:
        await close_body(response)
    return b"".join(parts)
