"""Tracks whether the API server responds to this process, for the health check `apiServer`."""

import asyncio
import math

from controller_manager.common.api.wire import DuplexStream, Request, Response
from controller_manager.common.base.clock import monotonic
from controller_manager.common.transport.transport import Transport, TransportError

_PATIENCE = 15.0  # seconds without a response until the API server counts as unreachable
_HANGING = 3.0  # seconds after which a cancelled request counts as failed


class Reachability:
    """Tracks since when requests to the API server get no response."""

    def __init__(self) -> None:
        self._failing_since = math.inf

    def answered(self) -> None:
        """Record a response with any status."""
        self._failing_since = math.inf

    def failed(self, began: float) -> None:
        """Record a request without a response; `began` is its monotonic start time."""
        self._failing_since = min(self._failing_since, began)

    def problem(self) -> str:
        """Return why the API server counts as unreachable; empty if it does not."""
        silent = monotonic() - self._failing_since
        return f"the API server has not answered for {silent:.0f} seconds" if silent >= _PATIENCE else ""


class ObservedTransport:
    """A transport that records which requests get a response."""

    def __init__(self, inner: Transport, reachability: Reachability) -> None:
        self.host = inner.host
        self._inner = inner
        self._reachability = reachability

    @property
    def authorities(self) -> bytes:
        """See `Transport`."""
        return self._inner.authorities

    async def send(self, request: Request) -> Response:
        """See `Transport`."""
        began = monotonic()
        try:
            response = await self._inner.send(request)
        except TransportError:
            self._reachability.failed(began)
            raise
        except asyncio.CancelledError:
            if monotonic() - began >= _HANGING:
                self._reachability.failed(began)
            raise
        self._reachability.answered()
        return response

    async def upgrade(self, request: Request) -> tuple[Response, DuplexStream | None]:
        """See `Transport`."""
        return await self._inner.upgrade(request)

    async def close(self) -> None:
        """See `Transport`."""
        await self._inner.close()
