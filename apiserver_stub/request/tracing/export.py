"""Exports finished spans to a collector in batches; spans that do not fit the queue or cannot be sent are counted.

The exporter of the library blocks, so it runs in one thread with one batch at a time.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry

from controller_manager.common.base.log import Logger
from controller_manager.common.base.metrics import Counters, Family

_MOST = 2048  # spans that wait
_BATCH = 512
_EVERY = 5.0  # seconds until spans are sent that are fewer
_LAST = 3.0  # seconds to export the last spans at shutdown
_LOST = Family(
    "apiserver_tracing_lost_spans_total",
    "Number of dropped spans, by reason: queue is full (queue), or export failed (collector).",
    "counter",
    ("reason",),
)


class SpanQueue(SpanProcessor):
    """Keeps spans until `run` has sent them."""

    def __init__(self, exporter: SpanExporter, registry: CollectorRegistry | None, log: Logger) -> None:
        self._exporter = exporter
        self._log = log
        self._lost = Counters(_LOST, registry)
        self._waiting: deque[ReadableSpan] = deque()
        self._full = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "traces")
        self._fails = False

    def on_start(self, span: SdkSpan, parent_context: Context | None = None) -> None:
        """Called by the library."""

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a span; called by the library."""
        if len(self._waiting) >= _MOST:
            self._lost.add("queue")
            return
        self._waiting.append(span)
        if len(self._waiting) >= _BATCH:
            self._full.set()

    async def run(self) -> None:
        """Send spans until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_EVERY):
                    await self._full.wait()
            except TimeoutError:
                pass
            self._full.clear()
            await self._send()

    async def close(self) -> None:
        """Export the remaining spans, for three seconds at most."""
        try:
            async with asyncio.timeout(_LAST):
                await self._send()
        except TimeoutError:
            self._log.warning("trace collector did not accept the last spans in time")
        self._count(len(self._waiting))
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._exporter.shutdown()

    async def _send(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            try:
                result = await asyncio.get_running_loop().run_in_executor(self._thread, self._export, batch)
            except asyncio.CancelledError:
                self._count(len(batch))
                raise
            if result is not SpanExportResult.SUCCESS:
                self._count(len(batch))
            self._log_state(fails=result is not SpanExportResult.SUCCESS)

    def _export(self, batch: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._exporter.export(batch)

    def _count(self, spans: int) -> None:
        if spans:
            self._lost.add("collector", by=float(spans))

    def _log_state(self, *, fails: bool) -> None:
        if fails and not self._fails:
            self._log.warning("trace collector does not accept spans; dropping them until it does")
        elif self._fails and not fails:
            self._log.info("trace collector accepts spans again")
        self._fails = fails
