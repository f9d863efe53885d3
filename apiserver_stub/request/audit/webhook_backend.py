"""The webhook backend: events are sent in lists (`EventList`) to the server of a kubeconfig file."""

from collections.abc import Awaitable, Sequence
from typing import Protocol

from apiserver_stub.request.audit.backends import BatchLimits, Buffer, Mode, fit
from apiserver_stub.request.audit.events import event_list
from apiserver_stub.request.audit.metrics import AuditMetrics
from controller_manager.common.api.errors import ServiceUnavailable

_PLUGIN = "webhook"
_FAREWELL = 8.0  # seconds that the last batches have


class Sender(Protocol):
    """The server that takes events."""

    async def send(self, document: bytes) -> None:
        """Send a document with retries. Raises `ServiceUnavailable`."""

    async def close(self) -> None:
        """End every connection."""


class WebhookBackend:
    """Sends batches of events; in the blocking modes each event for itself, while its request waits."""

    in_order = False

    def __init__(
        self,
        server: Sender,
        mode: Mode,
        limits: BatchLimits,
        most: int,
        metrics: AuditMetrics,
    ) -> None:
        self.strict = mode is Mode.BLOCKING_STRICT
        self._waits = mode is not Mode.BATCH
        self._server = server
        self._most = most
        self._metrics = metrics
        self._buffer = Buffer(limits, self._deliver, metrics, in_order=False)

    def accept(self, event: bytes, *, wait: bool) -> Awaitable[bool] | None:
        """Accept an event. Return an awaitable that sends it and returns whether it was delivered; None in the mode
        `batch` and without `wait`.
        """
        fitted = fit(event, self._most, self._metrics) if self._most else event
        if fitted is None:
            return None
        if not (wait and self._waits):
            self._buffer.add(fitted)
            return None
        return self._try([fitted])

    async def run(self) -> None:
        """Send buffered events until canceled."""
        await self._buffer.run()

    async def close(self) -> None:
        """Send the remaining events."""
        await self._buffer.drain(_FAREWELL)
        await self._server.close()

    async def _deliver(self, batch: Sequence[bytes]) -> None:
        await self._try(batch)

    async def _try(self, batch: Sequence[bytes]) -> bool:
        try:
            await self._server.send(event_list(batch))
        except ServiceUnavailable as error:
            self._metrics.lost(_PLUGIN, batch, error.message)
            return False
        return True
