"""Exec, attach and port forwarding: streams between a client and the kubelet in a negotiated protocol."""

from typing import NamedTuple
from urllib.parse import quote_plus, urlencode

from apiserver_stub.apis.kubelet.locations import Kubelet, container_of
from apiserver_stub.apis.kubelet.lookup import Lookup
from apiserver_stub.apis.kubelet.metrics import KubeletMetrics
from apiserver_stub.apis.kubelet.options import connection_options
from apiserver_stub.apis.kubelet.passing import Passing
from apiserver_stub.apis.kubelet.translator import Streams, Translator, needs_translation
from apiserver_stub.apis.kubelet.tunnel import through_tunnel, tunneled
from apiserver_stub.apis.kubelet.websocket import offers_websocket
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.request.request_info import not_allowed
from apiserver_stub.verbs.query import is_dry_run
from apiserver_stub.verbs.scope import RequestScope
from controller_manager.common.api.errors import BadRequest, InternalError, forbidden
from controller_manager.common.api.tree import Tree
from controller_manager.common.api.wire import Request, Response, offered_protocols
from controller_manager.common.serving.authorization import Authorizer, AuthorizerAttributes, Decision
from controller_manager.common.transport.connection_pool import ConnectionTarget

_PORTS = "portforward"
_PATHS = {"exec": "exec", "attach": "attach", _PORTS: "portForward"}
_KUBELET_NAMES = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
_CREATE = "create"
_WEBSOCKETS = "ExtendWebSocketsToKubelet"  # declared feature of nodes


class StreamFeatures(NamedTuple):
    """Features of streams: `passes_on` passes WebSockets to kubelets that declare support. For other kubelets,
    `translates` translates commands, and `tunnels` tunnels ports. `authorizes` requires permission to create the
    subresource.
    """

    passes_on: bool = True
    translates: bool = True
    tunnels: bool = True
    authorizes: bool = True


class PodStreams:
    """Handles exec, attach and port-forward. A caller with permission to get must also have permission to create, since
    WebSocket clients use GET where others use POST.
    """

    def __init__(
        self,
        scope: RequestScope,
        lookup: Lookup,
        passing: Passing,
        authorizer: Authorizer,
        metrics: KubeletMetrics,
        features: StreamFeatures,
    ) -> None:
        self._features = features
        self._translator = Translator(passing, metrics)
        self._scope = scope
        self._lookup = lookup
        self._passing = passing
        self._authorizer = authorizer
        self._metrics = metrics

    async def __call__(self, request: APIRequest) -> Response:
        """Return the upgrade to the kubelet's protocol, or the kubelet's error. Raises `ApiError`."""
        subresource = request.subresource_name
        if request.http.is_head:
            raise not_allowed()
        if is_dry_run(request.query):
            raise BadRequest("dryRun is not supported")
        options = connection_options(request)
        await self._scope.admit(request, "connect", options)
        await self._check(request)
        kubelet, target = await self._find(request, options)
        origin, http = self._passing.connections.kubelet(kubelet), request.http
        if self._translates(subresource, kubelet) and offers_websocket(http):
            if subresource == _PORTS and tunneled(http):
                return await self._tunnel(origin, http, target)
            if subresource != _PORTS and needs_translation(http):
                wanted = Streams(*(bool(options.get(field)) for field in Streams._fields))
                return self._translator.answer(http, origin, target, wanted)
        if not offered_protocols(http):
            raise BadRequest("Upgrade request required")
        return await self._passing.upgrade(origin, http, target)

    def _translates(self, subresource: str, kubelet: Kubelet) -> bool:
        """Return whether the WebSocket is translated here, and count the request."""
        features = self._features
        if not (features.tunnels if subresource == _PORTS else features.translates):
            return False
        passed_on = features.passes_on and _WEBSOCKETS in kubelet.features
        self._metrics.stream(subresource, passed_on=passed_on)
        return not passed_on

    async def _tunnel(self, origin: ConnectionTarget, request: Request, target: str) -> Response:
        offer = self._passing.spdy_offer(request, target, tunneled(request))
        response, stream = await self._passing.change(origin, offer)
        self._metrics.tunnel(response.status)
        return response if stream is None else through_tunnel(request, response, stream)

    async def _find(self, request: APIRequest, options: Tree) -> tuple[Kubelet, str]:
        """Return the kubelet and the target path."""
        pod = await self._lookup.pod(request, request.name)
        at = f"/{_PATHS[request.subresource_name]}/{request.namespace}/{request.name}"
        if request.subresource_name != _PORTS:
            at = f"{at}/{container_of(pod, request.name, options.get('container', ''))}"
        if not pod.spec.node_name:
            raise BadRequest(f"pod {request.name} does not have a host assigned")
        query = _query(options)
        return await self._lookup.kubelet(request, pod.spec.node_name), f"{at}?{query}" if query else at

    async def _check(self, request: APIRequest) -> None:
        """Raise `Forbidden` unless the caller may create the stream."""
        if request.verb == _CREATE or not self._features.authorizes:
            return
        kind = request.kind
        attributes = AuthorizerAttributes(
            request.user, _CREATE, request.http.path, kind.group, kind.version, kind.plural,
            request.subresource_name, request.namespace, request.name,
        )  # fmt: skip
        decision, reason, error = await self._authorizer.authorize(attributes)
        if decision is not Decision.ALLOW:
            raise InternalError(error) if error else forbidden(kind.group, kind.plural, request.name, reason)


def _query(options: Tree) -> str:
    """Return the query for the kubelet."""
    parameters = [("command", one) for one in options.get("command") or ()]
    parameters += [(name, "1") for field, name in _KUBELET_NAMES.items() if options.get(field)]
    if ports := options.get("ports"):
        parameters.append(("port", ",".join(map(str, ports))))
    return urlencode(sorted(parameters, key=lambda one: one[0]), quote_via=quote_plus)
