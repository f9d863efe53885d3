"""The handler chain. Every request passes through it once; it does not deal with sockets.

request info → authenticate → audit (begin) → impersonate → priority and fairness → authorize → route → audit (end)
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from types import FrameType
from typing import Protocol

import msgspec
from msgspec.structs import replace

from apiserver_stub.authn.impersonation import Impersonated
from apiserver_stub.common.streams import Initializing, ObservedStream
from apiserver_stub.encode.negotiate import ContentNegotiator
from apiserver_stub.flow_control import Rejected
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.request.api_request import AGGREGATOR, APIRequest, Handler, RequestContext, Seat
from apiserver_stub.request.audit import (
    HEADER,
    AuditIds,
    Auditor,
    AuditRecord,
    reset_current,
)
from apiserver_stub.request.request_info import RequestInfo, check_path, last_values, methods, resolve
from apiserver_stub.request.telemetry import RequestLabels, Telemetry
from apiserver_stub.request.tracing import RequestTracer
from apiserver_stub.server.request_audit import RequestAudit, shows_row
from apiserver_stub.verbs.query import request_timeout
from controller_manager.common.api.errors import ApiError, InternalError, MethodNotAllowed, NotFound, Timeout
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.wire import DuplexStream, Request, Response, Upgrade, check_offered
from controller_manager.common.base.clock import precise_clock
from controller_manager.common.base.deadlines import Deadlines
from controller_manager.common.base.log import DEBUG, Logger
from controller_manager.common.serving.authentication import User, refuse_impersonation, wants_impersonation
from controller_manager.common.serving.authorization import Authorizer, Decision, refusal
from controller_manager.common.transport.transport import close_body

Health = Callable[[Request], Response | None]
Page = Callable[[Request, RequestInfo], Awaitable[Response]]
Connect = Callable[[APIRequest], Awaitable[Response]]
"""Answers a streaming subresource with a chunked body or an upgrade, ready for the wire."""

_ALWAYS = {"cache-control": "no-cache, private"}
_LOG = "log"  # the only streaming subresource with a verb span; the others are connections to other endpoints
_READS = frozenset({"get", "list", "watch"})  # wait for a revision at most, and for that only briefly


class Authentication(Protocol):
    """Recognizes callers."""

    async def authenticate(self, request: Request) -> User:
        """Return the user who sent the request. Raises `Unauthorized`."""


class Impersonator(Protocol):
    """Resolves impersonation headers."""

    async def impersonate(self, context: RequestContext, user: User) -> Impersonated | None:
        """Return the impersonated user; None without impersonation. Raises `Forbidden` or `BadRequest`."""


class FlowControl(Protocol):
    """Limits the number of concurrent requests per flow."""

    def enter(self, context: RequestContext, user: User) -> Seat | None:
        """Return the seat of the request, which may be waiting; None if the request is exempt. Response headers are
        added to the context. Raises `Rejected`.
        """


class AggregatedAPIs(Protocol):
    """The APIs that other servers serve behind this one."""

    def serves(self, info: RequestInfo) -> bool:
        """Return whether the request is for an aggregated API."""

    async def answer(self, context: RequestContext, user: User) -> Response:
        """Forward the request and return the response of the other server. The request body may be unread. Results are
        recorded in the context.
        """


class Filters(msgspec.Struct, frozen=True):
    """The filters that decide on a request before it is handled.

    Without `impersonator`, impersonation is refused; without `flow_control`, requests do not wait; without `auditor`
    and `tracer`, requests are not audited and not traced. With several worker processes, `catch_up` returns an
    awaitable that ends when this process has seen all writes that another process has answered.
    """

    authenticator: Authentication
    authorizer: Authorizer
    impersonator: Impersonator | None = None
    flow_control: FlowControl | None = None
    auditor: Auditor | None = None
    tracer: RequestTracer | None = None
    catch_up: Callable[[], Awaitable[None] | None] | None = None


class Handlers(msgspec.Struct, frozen=True):
    """The handlers of requests: `health` for health paths, `page` for other non-resource paths, `streams` for streaming
    subresources by resource (`pods`, `deployments.apps`) and subresource name, `resource` for all other resources.
    Writes time out after `patience` seconds. Before an unknown resource returns 404, `serve_defined` installs custom
    resources whose CRDs were just established.
    """

    health: Health
    page: Page
    resource: Handler
    patience: float = 60.0
    streams: Mapping[tuple[str, str], Connect] = {}
    aggregated: AggregatedAPIs | None = None
    serve_defined: Callable[[], Awaitable[None]] | None = None


def on_behalf(frame: FrameType) -> str:
    """Return method, path and user of the request that `frame` handles; empty for frames of other functions."""
    if frame.f_code is not Server.handle.__code__:
        return ""
    request: Request = frame.f_locals["request"]
    context: RequestContext | None = frame.f_locals.get("context")
    shown = f"{request.method} {request.path!a}"
    return f"{shown} of {context.user.name!a}" if context is not None and context.user is not None else shown


class Server:
    """Handles every request; the only place of the API server where errors end."""

    def __init__(
        self,
        filters: Filters,
        kinds: ResourceRegistry,
        handlers: Handlers,
        negotiator: ContentNegotiator,
        telemetry: Telemetry,
        log: Logger,
    ) -> None:
        self._filters = filters
        self._kinds = kinds
        self._handlers = handlers
        self._negotiator = negotiator
        self._telemetry = telemetry
        self._log = log
        self._audit = None if filters.auditor is None else RequestAudit(filters.auditor, negotiator)
        self._audit_ids = AuditIds()
        self._now = precise_clock()
        self._patience = Deadlines(handlers.patience)

    async def handle(self, request: Request) -> Response:
        """Return the response. Errors become a `Status`; internal errors reveal no details."""
        query = last_values(request.query)
        info = RequestInfo.of(request.method, request.path, query)
        context = RequestContext(request, query, info, self._audit_ids.of(request.headers), self._now())
        audit = self._audit
        token = None if audit is None else audit.open(context)
        under_way = self._telemetry.begin(request.method)
        try:
            response = await self._respond(context)
        except asyncio.CancelledError:
            self._telemetry.abort(context)
            if context.span is not None:
                context.span.end()
            if audit is not None:
                audit.ended(context)
            raise
        finally:
            self._telemetry.end(under_way)
            if token is not None:
                reset_current(token)
        if audit is not None and context.audit is not None:
            emitted = audit.answered(context.audit, context, response)
            if emitted is not None:
                try:
                    await emitted
                except asyncio.CancelledError:
                    await _give_up(context, response)
                    raise
        response = self._finished(context, response)
        return response if context.span is None else context.span.answer(response)

    async def _respond(self, context: RequestContext) -> Response:
        """Authenticate, begin the audit, impersonate, wait for a seat, authorize and route. Errors end here."""
        filters, request = self._filters, context.http
        try:
            if filters.catch_up is not None and context.info.resource and (late := filters.catch_up()) is not None:
                await late
            user = context.user = await filters.authenticator.authenticate(request)
            if filters.tracer is not None:
                context.span = filters.tracer.begin(context, user)
            span = context.span
            if span is not None:
                span.enter("audit")
            if self._audit is not None:
                emitted = self._audit.begin(context, user)
                if emitted is not None:
                    await emitted
            if span is not None:
                span.enter("constrainedimpersonation")
            if wants_impersonation(request.headers):
                user = await self._impersonate(context, user)
            if span is not None:
                span.enter("priorityandfairness")
            seat = None if filters.flow_control is None else filters.flow_control.enter(context, user)
            if seat is not None and seat.waiting:
                await seat.wait()
                if context.audit is not None:
                    context.audit.lap("apf-queue-wait", self._now())
            try:
                if span is not None:
                    span.enter("authorization")
                await self._authorize(context, user)
                response = await self._route(context, user)
                if seat is not None and not isinstance(response.body, bytes):
                    context.seat, seat = seat, None
                return response
            finally:
                if seat is not None:
                    seat.end()
        except Rejected as error:
            info = context.info
            context.resolved = self._kinds.find(info.group, info.version, info.resource) is not None
            self._telemetry.terminate(context, error.code)
            return error.response()
        except ApiError as error:
            return self._refused(error, context)
        except Exception:  # noqa: BLE001  # the handler chain, where errors end
            self._log.exception("a request failed", method=request.method, path=request.path)
            context.failed = True
            return self._refused(InternalError("the request failed inside the server; see its log"), context)

    async def _impersonate(self, context: RequestContext, user: User) -> User:
        """Return the user that the request runs as. Raises `Forbidden` or `BadRequest`."""
        impersonator = self._filters.impersonator
        if impersonator is None:
            refuse_impersonation(context.http.headers)
            return user
        found = await impersonator.impersonate(context, user)
        if found is None:
            return user
        context.impersonated, context.constraint = found.user, found.constraint
        if context.audit is not None:
            context.audit.note_impersonation(found.user, found.constraint)
            context.audit.since = self._now()  # the impersonator recorded its own latency
        return found.user

    async def _authorize(self, context: RequestContext, user: User) -> None:
        """Check that the user may do this. Raises `Forbidden`, or `InternalError` if the authorizer failed."""
        attributes = context.info.attributes(user)
        authorization = await self._filters.authorizer.authorize(attributes)
        if context.audit is not None:
            RequestAudit.decided(context.audit, authorization, self._now())
        decision, reason, error = authorization
        if decision is not Decision.ALLOW:
            raise InternalError(error) if error else refusal(attributes, reason)

    async def _route(self, context: RequestContext, user: User) -> Response:
        """Pass the request to its handler."""
        request, info, handlers = context.http, context.info, self._handlers
        if handlers.aggregated is not None and handlers.aggregated.serves(info):
            return _checked(request, await handlers.aggregated.answer(context, user))
        asked = 0.0 if info.verb == "watch" else request_timeout(context.query)
        if not info.resource:
            check_path(info.path)
            return handlers.health(request) or await handlers.page(request, info)
        try:
            kind, subresource = resolve(info, self._kinds)
        except NotFound:
            if handlers.serve_defined is None:
                raise
            await handlers.serve_defined()
            kind, subresource = resolve(info, self._kinds)
        context.resolved = True
        if context.audit is not None and kind.deprecation:
            context.audit.annotate(f"{GROUP_DOMAIN}/deprecated", "true")
        namespace = info.namespace if kind.namespaced else ""
        connect = None if subresource is None else handlers.streams.get((kind.storage, subresource.name))
        context.long_running = connect is not None or info.verb == "watch"
        if connect is None and request.unread is not None:
            request = await request.received(user.name)
        api_request = APIRequest(request, user, info.verb, kind, namespace, info.name, subresource, context.query)
        if connect is not None and (context.span is None or info.subresource != _LOG):
            return _checked(request, await connect(api_request))
        if context.span is None:
            return await self._serve(api_request, asked, context.audit)
        with context.span.verb() as span:
            traced = replace(api_request, span=span)
            try:
                if connect is not None:
                    return _checked(request, await connect(traced))
                return await self._serve(traced, asked, context.audit)
            except ApiError as error:
                with span.child("SerializeObject", {"method": request.method, "url": request.path}) as encoding:
                    response = self._refused(error, context)
                    encoding.note({"mediaType": response.headers["content-type"]})
                return response

    async def _serve(self, request: APIRequest, asked: float, record: AuditRecord | None) -> Response:
        """Run the verb and return its result in the requested representation. Writes have a timeout."""
        negotiator, answer = self._negotiator, self._handlers.resource
        representation = negotiator.check(request)
        if request.verb in _READS:
            reply = await answer(request)
            if self._audit is not None and record is not None and (record.is_full or not shows_row(reply)):
                await self._audit.replied(record, request, representation, reply)
            return await negotiator.respond(request, representation, reply)
        patience = self._patience
        try:
            async with asyncio.timeout(asked) if 0 < asked < patience.seconds else patience.deadline():
                reply = await answer(request)
                if self._audit is not None and record is not None:
                    await self._audit.replied(record, request, representation, reply)
                return await negotiator.respond(request, representation, reply)
        except TimeoutError:
            why = "the request did not complete within the allotted time: it is unknown whether anything was written"
            raise Timeout(why) from None

    def _refused(self, error: ApiError, context: RequestContext) -> Response:
        request = context.http
        if context.audit is not None:
            RequestAudit.refused(context.audit, error)
        response = self._negotiator.refuse(error, request)
        if not isinstance(error, MethodNotAllowed):
            return response
        allowed = {"allow": ", ".join(methods(request.path, self._kinds))}
        return Response(response.status, {**response.headers, **allowed}, response.body, response.repeated)

    def _finished(self, context: RequestContext, response: Response) -> Response:
        """Record metrics and add the common headers. Streams are tracked until they end."""
        request, status = context.http, response.status
        is_own = context.component != AGGREGATOR
        if request.method == "GET" and is_own and not context.long_running:
            response = self._negotiator.pack(request, response)
        seconds = self._now() - context.started
        self._telemetry.count(context, status, seconds)
        if self._log.shows(DEBUG):
            path = ascii(request.path)  # clients can send any path, including line breaks
            self._log.debug("answered", method=request.method, path=path, status=status, seconds=seconds)
        headers = {HEADER: context.audit_id, **_ALWAYS, **context.headers, **response.headers}
        body = response.body
        if not isinstance(body, bytes):
            body = self._followed(context, body)
        return Response(status, headers, body, response.repeated)

    def _followed(
        self, context: RequestContext, body: AsyncIterator[bytes] | Upgrade
    ) -> AsyncIterator[bytes] | Upgrade:
        """Return the same stream, counted as long-running until it ends and then reported to the auditor."""
        seat = context.seat
        is_long = context.long_running or isinstance(body, Upgrade)
        patience = None if seat is None else self._bounded(seat, body, is_long=is_long)
        if isinstance(body, Upgrade):
            return Upgrade(body.protocol, partial(self._talk, context, body))
        if is_long:
            labels = self._telemetry.opened(context)
            return ObservedStream(body, partial(self._ended, context, labels, patience))
        if seat is None and context.audit is None:
            return body
        return ObservedStream(body, partial(self._ended, context, None, patience))

    def _bounded(
        self, seat: Seat, body: AsyncIterator[bytes] | Upgrade, *, is_long: bool
    ) -> asyncio.TimerHandle | None:
        """Release the seat of a stream: a watch after its initial events, other long-running streams at once.

        A slow reader receives the whole stream, but holds a seat no longer than any other request.
        """
        if isinstance(body, Initializing):
            body.when_initialized(seat.release)
        elif is_long:
            seat.release()
            return None
        return asyncio.get_running_loop().call_later(self._handlers.patience, seat.release)

    async def _talk(self, context: RequestContext, upgrade: Upgrade, stream: DuplexStream) -> None:
        labels = self._telemetry.opened(context)
        try:
            await upgrade.serve(stream)
        finally:
            self._ended(context, labels)

    def _ended(
        self, context: RequestContext, labels: RequestLabels | None, patience: asyncio.TimerHandle | None = None
    ) -> None:
        if patience is not None:
            patience.cancel()
        _end_seat(context)
        if labels is not None:
            self._telemetry.closed(labels)
        if self._audit is not None:
            self._audit.ended(context)


async def _give_up(context: RequestContext, response: Response) -> None:
    """Release the response of a client that has disconnected."""
    _end_seat(context)
    if context.span is not None:
        context.span.end()
    await close_body(response)


def _end_seat(context: RequestContext) -> None:
    """Release the seat held by a response. Seat and context reference each other, so the cycle is broken here."""
    seat, context.seat = context.seat, None
    if seat is not None:
        seat.end()


def _checked(request: Request, response: Response) -> Response:
    """Return the response. Raises RuntimeError if it upgrades to a protocol that the request did not offer."""
    check_offered(request, response)
    return response
