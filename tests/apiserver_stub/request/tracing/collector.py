"""A collector of spans: OTLP over gRPC with the messages of the official package (`opentelemetry-proto`)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class Span(NamedTuple):
    """One span as it arrived."""

    name: str
    kind: int
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    links: list[tuple[str, str]]
    seconds: float
    status: int
    scope: str
    resource: dict[str, Any]


class Collector(grpc.GenericRpcHandler):
    """Receives spans; with `hangs` it does not answer."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.hangs = False
        self._arrived = asyncio.Condition()

    def service(self, details: Any) -> Any:
        if details.method != EXPORT:
            return None
        return grpc.unary_unary_rpc_method_handler(
            self._export,
            trace_service_pb2.ExportTraceServiceRequest.FromString,
            trace_service_pb2.ExportTraceServiceResponse.SerializeToString,
        )

    async def wait_for_spans(self, fits: Callable[[list[Span]], Any], seconds: float = 10.0) -> list[Span]:
        """Return the spans once they fit."""
        async with asyncio.timeout(seconds), self._arrived:
            await self._arrived.wait_for(lambda: fits(self.spans))
        return self.spans

    async def _export(self, request: Any, _: Any) -> Any:
        if self.hangs:
            await asyncio.sleep(600)
        for resource in request.resource_spans:
            about = values(resource.resource.attributes)
            for scoped in resource.scope_spans:
                self.spans += [_span(one, scoped.scope.name, about) for one in scoped.spans]
        async with self._arrived:
            self._arrived.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()


def _span(one: Any, scope: str, resource: dict[str, Any]) -> Span:
    return Span(
        one.name,
        one.kind,
        one.trace_id.hex(),
        one.span_id.hex(),
        one.parent_span_id.hex(),
        values(one.attributes),
        [(event.name, values(event.attributes)) for event in one.events],
        [(link.trace_id.hex(), link.span_id.hex()) for link in one.links],
        (one.end_time_unix_nano - one.start_time_unix_nano) / 1e9,
        one.status.code,
        scope,
        resource,
    )


def values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value") for one in attributes}


@contextlib.asynccontextmanager
async def collecting(address: str = "127.0.0.1:0") -> AsyncIterator[tuple[Collector, str]]:
    """Serve a collector; yield it and its endpoint."""
    server, collector = grpc.aio.server(options=[("grpc.so_reuseport", 0)]), Collector()
    server.add_generic_rpc_handlers((collector,))
    port = server.add_insecure_port(address)
    await server.start()
    try:
        yield collector, address if address.startswith("unix:") else f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
