"""Traces requests with OpenTelemetry. Span names and attributes match kube-apiserver.

A request is traced if its `traceparent` is sampled, or by sampling rate. The trace context of callers other than
operators (`system:masters`, `system:monitoring`) becomes a link, not the parent. Only traced requests have spans.
"""

import logging
import socket
from base64 import b32encode
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlencode

from prometheus_client import CollectorRegistry

from apiserver_stub.common.spans import CURRENT, NOTHING, Span, SpanAttributes
from apiserver_stub.common.streams import ObservedStream
from apiserver_stub.request.api_request import RequestContext
from apiserver_stub.request.audit import source_ips
from apiserver_stub.request.request_info import RequestInfo
from apiserver_stub.request.tracing.configuration import TracingConfiguration
from apiserver_stub.request.tracing.endpoint import DialedEndpoint
from controller_manager.common.api.platform import ADMIN_GROUP
from controller_manager.common.api.wire import DuplexStream, Request, Response, Upgrade
from controller_manager.common.base.clock import monotonic, wall_seconds
from controller_manager.common.base.log import Logger
from controller_manager.common.serving.authentication import User
from controller_manager.common.transport.dialer import Dialer
from controller_manager.common.transport.transport import ConfigError

try:
    from opentelemetry import context as otel_context
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    from apiserver_stub.request.tracing.export import SpanQueue
except ImportError:
    raise ConfigError("traces need the OpenTelemetry SDK; the extra `otel` of this package brings it") from None

_SCOPE = "k8s.io/component-base/tracing"
_HTTP_SCOPE = "go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
_FILTER_SCOPE = "k8s.op/apiserver/pkg/endpoints/filterlatency"
_OPERATORS = frozenset({ADMIN_GROUP, "system:monitoring"})
_TIMEOUT = 5  # seconds per export of a batch
_NANOSECONDS = 1_000_000_000
_MILLION = 1_000_000
_VERBS: Mapping[str, str] = {
    "create": "Create", "delete": "Delete", "deletecollection": "Delete", "get": "Get", "list": "List",
    "patch": "Patch", "update": "Update",
}  # fmt: skip
_REPORTED_VERBS: Mapping[str, str] = {"create": "POST", "update": "PUT", "deletecollection": "DELETE"}
_CONNECTS = frozenset({"attach", "exec", "log", "portforward", "proxy"})
_READS = frozenset({"Get", "List"})
_FAILED = 500


class Tracer:
    """Creates the spans of requests; `run` exports them, `close` exports the rest."""

    def __init__(
        self,
        configuration: TracingConfiguration,
        registry: CollectorRegistry | None,
        log: Logger,
        dialer: Dialer | None,
    ) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # the queue logs export failures once
        rate = configuration.sampling_rate_per_million
        target, self._endpoint = configuration.target, None
        if dialer is not None and not target.startswith("unix"):
            self._endpoint = DialedEndpoint(target, dialer, log)
            target = self._endpoint.target
        exporter = OTLPSpanExporter(target, insecure=True, timeout=_TIMEOUT)
        self._queue = SpanQueue(exporter, registry, log)
        self._by_chance = rate > 0
        provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(rate / _MILLION) if rate else ALWAYS_OFF),
            resource=Resource({"service.name": "apiserver", "service.instance.id": _instance_id()}),
            shutdown_on_exit=False,
        )
        provider.add_span_processor(self._queue)
        self._http = provider.get_tracer(_HTTP_SCOPE)
        self._filters = provider.get_tracer(_FILTER_SCOPE)
        self._work = provider.get_tracer(_SCOPE)
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, context: RequestContext, user: User) -> "TracedRequest | None":
        """Return the span of a request and make it current; None if it is not traced."""
        request = context.http
        has_parent = "traceparent" in request.headers
        CURRENT.set(None)
        if not (has_parent or self._by_chance):
            return None
        parent = (
            self._propagator.extract(request.headers, otel_context.Context()) if has_parent else otel_context.Context()
        )
        links = []
        if has_parent and _OPERATORS.isdisjoint(user.groups):
            links = [trace.Link(trace.get_current_span(parent).get_span_context())]
            parent = otel_context.Context()
        since = monotonic() - context.started
        span = self._http.start_span(
            _name(request, context.info),
            parent,
            trace.SpanKind.SERVER,
            links=links if links and links[0].context.is_valid else None,
            start_time=int((wall_seconds() - since) * _NANOSECONDS),
        )
        if not span.is_recording():
            return None
        span.set_attributes(_described(context))
        return TracedRequest(self, context, span)

    def start(self, name: str, parent: Any, *, scope: str = _SCOPE, kind: Any = trace.SpanKind.INTERNAL) -> Any:
        """Return a part of a span of the library."""
        made = {_SCOPE: self._work, _FILTER_SCOPE: self._filters, _HTTP_SCOPE: self._http}[scope]
        return made.start_span(name, trace.set_span_in_context(parent, otel_context.Context()), kind)

    async def run(self) -> None:
        """Send spans until cancelled."""
        if self._endpoint is not None:
            await self._endpoint.open()
        await self._queue.run()

    async def close(self) -> None:
        """Export the remaining spans, for a few seconds at most."""
        await self._queue.close()
        if self._endpoint is not None:
            await self._endpoint.close()


class TracedSpan:
    """A `Span` of the library's."""

    def __init__(self, request: "TracedRequest", span: Any) -> None:
        self._request = request
        self._span = span

    @property
    def is_open(self) -> bool:
        """See `Span`."""
        return self._request.is_open

    def child(self, name: str, attributes: SpanAttributes = NOTHING) -> AbstractContextManager[Span]:
        """See `Span`."""
        span = self._request.tracer.start(name, self._span)
        span.set_attributes({"audit-id": self._request.audit_id, **attributes})
        return self._within(span)

    def client(self, method: str, url: str) -> AbstractContextManager[Span]:
        """See `Span`."""
        span = self._request.tracer.start(f"HTTP {method}", self._span, scope=_HTTP_SCOPE, kind=trace.SpanKind.CLIENT)
        span.set_attributes({"http.request.method": method, "url.full": url})
        return self._within(span)

    def note(self, attributes: SpanAttributes) -> None:
        """See `Span`."""
        self._span.set_attributes(attributes)

    def event(self, name: str, attributes: SpanAttributes = NOTHING) -> None:
        """See `Span`."""
        self._span.add_event(name, attributes)

    @property
    def headers(self) -> Mapping[str, str]:
        """See `Span`."""
        carrier: dict[str, str] = {}
        here = trace.set_span_in_context(self._span, otel_context.Context())
        TraceContextTextMapPropagator().inject(carrier, here)
        return carrier

    @contextmanager
    def _within(self, span: Any) -> Iterator[Span]:
        found = TracedSpan(self._request, span)
        token = CURRENT.set(found)
        try:
            yield found
        finally:
            CURRENT.reset(token)
            span.end()


class TracedRequest:
    """A `RequestSpan`: the span of a request, and within it one for each filter that has begun."""

    def __init__(self, tracer: Tracer, context: RequestContext, span: Any) -> None:
        self.tracer = tracer
        self.audit_id = context.audit_id
        self._context = context
        self._open = [span]
        CURRENT.set(TracedSpan(self, span))

    @property
    def is_open(self) -> bool:
        """Return whether it has not ended."""
        return bool(self._open)

    def enter(self, filter_name: str) -> None:
        """See `RequestSpan`."""
        self._open.append(self.tracer.start(filter_name, self._open[-1], scope=_FILTER_SCOPE))
        CURRENT.set(self._innermost)

    @contextmanager
    def verb(self) -> Iterator[Span]:
        """See `RequestSpan`."""
        context, here = self._context, self._innermost
        name = _VERBS.get(context.info.verb)
        if name is None:
            with self._watch(here) as span:
                yield span
            return
        with here.child(name, _of_verb(context)) as span:
            if name not in _READS:
                span.event("limitedReadBody succeeded", {"len": _length(context.http)})
            yield span

    @contextmanager
    def _watch(self, here: "TracedSpan") -> Iterator[Span]:
        """Begin the span of a watch, inside a WatchList span if initial events are requested."""
        cached = {"type": self._context.info.resource}
        if self._context.query.get("sendInitialEvents") == "true":
            with here.child("WatchList", _of_verb(self._context)) as outer, outer.child("cacher.Watch", cached) as span:
                yield span
        else:
            with here.child("cacher.Watch", cached) as span:
                yield span

    @property
    def _innermost(self) -> "TracedSpan":
        return TracedSpan(self, self._open[-1])

    def answer(self, response: Response) -> Response:
        """See `RequestSpan`."""
        CURRENT.set(None)
        root, body = self._open[0], response.body
        root.set_attribute("http.response.status_code", response.status)
        if response.status >= _FAILED:
            root.set_status(trace.StatusCode.ERROR)
        if isinstance(body, bytes):
            if body:
                root.set_attribute("http.response.body.size", len(body))
            self.end()
            return response
        followed = (
            Upgrade(body.protocol, self._talking(body)) if isinstance(body, Upgrade) else ObservedStream(body, self.end)
        )
        return Response(response.status, response.headers, followed, response.repeated)

    def end(self) -> None:
        """See `RequestSpan`."""
        CURRENT.set(None)
        while self._open:
            self._open.pop().end()

    def _talking(self, upgrade: Upgrade) -> Any:
        async def serve(stream: DuplexStream) -> None:
            try:
                await upgrade.serve(stream)
            finally:
                self.end()

        return serve


def _name(request: Request, info: RequestInfo) -> str:
    """Return method and route."""
    if not info.resource:
        return request.method
    prefix = f"/apis/{info.group}" if info.group else "/api"
    parts = [f"{prefix}/{info.version}"]
    if info.namespace:
        parts.append("namespaces/{:namespace}")
    parts.append(info.resource)
    if info.name:
        parts.append("{:name}")
    if info.subresource:
        parts.append(info.subresource)
    return f"{request.method} {'/'.join(parts)}"


def _described(context: RequestContext) -> dict[str, Any]:
    """Return the span attributes of a request; unknown ones are omitted."""
    request = context.http
    host, colon, port = request.headers.get("host", "").rpartition(":")
    path, query = quote(request.path), urlencode(request.query, quote_via=quote)
    found: dict[str, Any] = {
        "http.request.method": request.method,
        "url.scheme": "https",
        "url.path": request.path,
        "http.target": f"{path}?{query}" if query else path,
        "network.protocol.version": "1.1",
        "audit-id": context.audit_id,
        "server.address": (host if colon else port).strip("[]"),
        "user_agent.original": request.headers.get("user-agent", ""),
        "client.address": request.headers.get("x-forwarded-for", "").partition(",")[0].strip() or request.remote,
        "network.peer.address": request.remote,
    }
    if colon and port.isdecimal():
        found["server.port"] = int(port)
    if size := _length(request):
        found["http.request.body.size"] = size
    return {name: value for name, value in found.items() if value != ""}


def _of_verb(context: RequestContext) -> dict[str, str]:
    """Return the attributes of the work of a verb."""
    request, info = context.http, context.info
    sources = source_ips(request)
    connects = info.subresource in _CONNECTS
    applies = info.verb == "patch" and request.headers.get("content-type", "").startswith("application/apply-patch")
    return {
        "accept": request.headers.get("accept", ""),
        "api-group": info.group,
        "api-version": info.version,
        "client": sources[0] if sources else "",
        "name": info.name,
        "subresource": info.subresource,
        "namespace": info.namespace,
        "protocol": "HTTP/1.1",
        "resource": info.resource,
        "scope": "resource" if info.name or info.verb == "create" else "namespace" if info.namespace else "cluster",
        "url": request.path,
        "user-agent": request.headers.get("user-agent", ""),
        "verb": "CONNECT" if connects else "APPLY" if applies else _REPORTED_VERBS.get(info.verb, info.verb.upper()),
    }


def _length(request: Request) -> int:
    length = request.headers.get("content-length", "")
    return len(request.body) or (int(length) if length.isdecimal() and length.isascii() else 0)


def _instance_id() -> str:
    """Return how kube-apiserver calls itself: by the name of the machine."""
    digest = sha256(socket.gethostname().encode()).digest()[:16]
    return f"apiserver-{b32encode(digest).decode().rstrip('=').lower()}"
