"""The handler chain: every request passes straight through it, from request info to the answer; it knows no sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import FrameType

from apiserver_stub.audit import HEADER, AuditIds
from apiserver_stub.call import APIRequest, Handler
from apiserver_stub.encode.negotiate import ContentNegotiator
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.parse import RequestInfo, last_values, methods, parse, resolve
from apiserver_stub.telemetry import Telemetry
from apiserver_stub.verbs.query import request_timeout
from controller_manager.api.errors import ApiError, InternalError, MethodNotAllowed, Timeout
from controller_manager.api.wire import Request, Response
from controller_manager.base.clock import monotonic
from controller_manager.base.log import DEBUG, Logger
from controller_manager.serving.authentication import RequestAuthenticator
from controller_manager.serving.authorization import Authorizer, Decision, refusal
from controller_manager.serving.impersonation import refuse_impersonation

Page = Callable[[Request, RequestInfo], Awaitable[Response]]
Probe = Callable[[Request], Response | None]

_ALWAYS = {"cache-control": "no-cache, private"}
_READS = frozenset({"get", "list", "watch"})  # wait for a revision at most, and for that only briefly


@dataclass(frozen=True, slots=True)
class Filters:
    """What decides on a request; `probe` answers health paths."""

    probe: Probe
    authenticator: RequestAuthenticator
    authorizer: Authorizer


@dataclass(frozen=True, slots=True)
class Handlers:
    """Who answers: `page` the paths that address no resource, `answer` the others, writes within `patience` seconds."""

    page: Page
    answer: Handler
    patience: float = 60.0


def on_behalf(frame: FrameType) -> str:
    """The request a frame of this module answers, and of whom, as far as it is known; empty for other frames."""
    if frame.f_code is Server._serve.__code__:
        call: APIRequest = frame.f_locals["call"]
        return f"{call.http.method} {call.http.path!a} of {call.user.name!a}"
    if frame.f_code is Server.handle.__code__:
        request: Request = frame.f_locals["request"]
        return f"{request.method} {request.path!a}"
    return ""


class Server:
    """Answers every request; the one place of the API server where errors end."""

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
        self._audit_ids = AuditIds()

    async def handle(self, request: Request) -> Response:
        """The answer; a refusal is a `Status`, and so is a failure, which tells the caller nothing of the inside."""
        started = monotonic()
        under_way = self._telemetry.begin(request.method)
        try:
            route, response = await self._answer(request)
        finally:
            self._telemetry.end(under_way)
        if route is not None and route.verb == "watch":
            response = self._telemetry.long_running(request, route, response)
        elif request.method == "GET":
            response = self._negotiator.pack(request, response)
        seconds = monotonic() - started
        self._telemetry.count(request, route, response.status, seconds)
        if self._log.shows(DEBUG):
            path = ascii(request.path)  # anybody may ask for anything, new lines included
            self._log.debug("answered", method=request.method, path=path, status=response.status, seconds=seconds)
        headers = {HEADER: self._audit_ids.of(request.headers), **_ALWAYS, **response.headers}
        return Response(response.status, headers, response.body, response.repeated)

    async def _answer(self, request: Request) -> tuple[RequestInfo | None, Response]:
        """The answer, and the route of a resource that there is."""
        known = None
        try:
            user = await self._filters.authenticator.authenticate(request)
            refuse_impersonation(request.headers)
            query = last_values(request.query)
            route = parse(request.method, request.path, query)
            attributes = route.attributes(user)
            decision, reason = await self._filters.authorizer.authorize(attributes)
            if decision is not Decision.ALLOW:
                raise refusal(attributes, reason)
            asked = 0.0 if route.verb == "watch" else request_timeout(query)
            if not route.resource:
                return None, self._filters.probe(request) or await self._handlers.page(request, route)
            kind, part = resolve(route, self._kinds)
            known = route
            if request.unread is not None:
                request = await request.received(user.name)
            namespace = route.namespace if kind.namespaced else ""
            call = APIRequest(request, user, route.verb, kind, namespace, route.name, part, query)
            return known, await self._serve(call, asked)
        except ApiError as error:
            return known, self._refused(error, request)
        except Exception:  # noqa: BLE001  # the handler chain, where errors end
            self._log.exception("a request failed", method=request.method, path=request.path)
            failure = InternalError("the request failed inside the server, whose log says why")
            return known, self._negotiator.refuse(failure, request)

    def _refused(self, error: ApiError, request: Request) -> Response:
        response = self._negotiator.refuse(error, request)
        if not isinstance(error, MethodNotAllowed):
            return response
        allowed = {"allow": ", ".join(methods(request.path, self._kinds))}
        return Response(response.status, {**response.headers, **allowed}, response.body)

    async def _serve(self, call: APIRequest, asked: float) -> Response:
        representation = self._negotiator.check(call)
        if call.verb in _READS:
            return await self._negotiator.respond(call, representation, await self._handlers.answer(call))
        patience = self._handlers.patience
        try:
            async with asyncio.timeout(min(asked, patience) if asked > 0 else patience):
                return await self._negotiator.respond(call, representation, await self._handlers.answer(call))
        except TimeoutError:
            why = "the request did not complete within the allotted time: it is unknown whether anything was written"
            raise Timeout(why) from None
