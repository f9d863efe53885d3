"""Fetches documents of providers over TLS, with limits of time, bytes and redirects."""

import asyncio
from copy import copy
from typing import Self
from urllib.parse import urljoin, urlsplit

from controller_manager.common.api.wire import Response
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.transport.connection_pool import ConnectionPool, ConnectionTarget
from controller_manager.common.transport.dialer import Dialer
from controller_manager.common.transport.transport import Endpoint, client_context

_CONNECTIONS = 4
_TIMEOUT = 30.0  # seconds for a document, with redirects
_LARGEST = 1 << 20  # bytes of a document
_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 10
_HTTPS = 443


class FetchError(Exception):
    """A document could not be fetched; the message contains its URL and the reason."""


class Fetcher:
    """Fetches from any host with a certificate signed by the authorities `ca` (PEM), or those of the system; directly
    or through a dialer.
    """

    def __init__(self, ca: str, dialer: Dialer | None = None) -> None:
        self._dialer = dialer
        self._tls = client_context(Endpoint("https://", ca.encode()), b"", b"")
        self._pool = self._new_pool()

    def apart(self) -> Self:
        """Return a fetcher with the same authorities and separate connections."""
        other = copy(self)
        other._pool = self._new_pool()
        return other

    async def get(self, url: str, token: str = "") -> Response:
        """Return the document at a URL; `token` is shown to its host, and to no other. Raises `FetchError`."""
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await self._follow(url, token)
        except TimeoutError:
            raise FetchError(f"{url}: timed out") from None
        except (OSError, ValueError, CannotStart) as error:
            raise FetchError(f"{url}: {error}") from None

    def close(self) -> None:
        """Close all connections; running fetches fail."""
        self._pool.close()

    def _new_pool(self) -> ConnectionPool:
        return ConnectionPool(_CONNECTIONS, _TIMEOUT, _TIMEOUT, _LARGEST, self._dialer)

    async def _follow(self, url: str, token: str) -> Response:
        first = urlsplit(url).netloc
        for _ in range(_MOST_REDIRECTS + 1):
            response = await self._get(url, token if urlsplit(url).netloc == first else "")
            if response.status not in _REDIRECTS:
                if not 200 <= response.status < 300:
                    raise FetchError(f"{url}: status {response.status}")
                return response
            url = urljoin(url, response.headers.get("location", ""))
        raise FetchError(f"{url}: too many redirects")

    async def _get(self, url: str, token: str) -> Response:
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise FetchError(f"{url}: not an https URL")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"GET {target} HTTP/1.1", f"host: {parts.netloc.rpartition('@')[2]}", "accept: */*"]
        if token:
            lines.append(f"authorization: Bearer {token}")
        if not all(line.isascii() and line.isprintable() for line in lines):
            raise FetchError(f"{url!r}: the URL or the token has characters that are not allowed in a request")
        origin = ConnectionTarget(parts.hostname, parts.port or _HTTPS, self._tls)
        return await self._pool.send(origin, "\r\n".join([*lines, "", ""]).encode(), idempotent=True)
