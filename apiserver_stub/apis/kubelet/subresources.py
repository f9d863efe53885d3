"""Wires the kubelet subresources together."""

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from apiserver_stub.apis.kubelet.connections import KubeletConnections
from apiserver_stub.apis.kubelet.log import PodLogs
from apiserver_stub.apis.kubelet.lookup import Lookup
from apiserver_stub.apis.kubelet.metrics import KubeletMetrics
from apiserver_stub.apis.kubelet.passing import Passing
from apiserver_stub.apis.kubelet.proxy import Proxy
from apiserver_stub.apis.kubelet.streams import PodStreams, StreamFeatures
from apiserver_stub.common.flags import (
    LOG_STREAMS,
    PASSED_ON_WEBSOCKETS,
    STREAM_CREATION,
    TRANSLATION,
    TUNNELS,
    KubeletOptions,
)
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.verbs.scope import RequestScope
from controller_manager.common.api.wire import Response
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.serving.authentication import RequestHeaderConfig
from controller_manager.common.serving.authorization import Authorizer
from controller_manager.common.transport.dialer import Dialer

Connect = Callable[[APIRequest], Awaitable[Response]]


class KubeletParts(msgspec.Struct, frozen=True):
    """The dependencies of these subresources. Without a `dialer`, connections are direct. `enabled` returns whether a
    feature is on. `check` raises `NotAcceptable` if the client accepts no served media type.
    """

    scope: RequestScope
    authorizer: Authorizer
    proxies: RequestHeaderConfig
    runtime: Runtime
    enabled: Callable[[str], bool]
    check: Callable[[APIRequest], object]
    dialer: Dialer | None = None


class KubeletSubresources:
    """Logs, exec, attach, port forwarding and proxies. Call `open` and `close` with the server."""

    def __init__(self, options: KubeletOptions, parts: KubeletParts) -> None:
        self._connections = connections = KubeletConnections(options, parts.runtime.log("kubelets"), parts.dialer)
        lookup, metrics = Lookup(parts.scope, options), KubeletMetrics(parts.runtime.registry)
        passing = Passing(connections, parts.proxies)
        features = StreamFeatures(*map(parts.enabled, (PASSED_ON_WEBSOCKETS, TRANSLATION, TUNNELS, STREAM_CREATION)))
        streams = PodStreams(parts.scope, lookup, passing, parts.authorizer, metrics, features)
        proxy = Proxy(parts.scope, lookup, passing)
        self.handlers: Mapping[tuple[str, str], Connect] = {
            ("pods", "log"): PodLogs(lookup, connections, metrics, parts.check, streams=parts.enabled(LOG_STREAMS)),
            **{("pods", name): streams for name in ("exec", "attach", "portforward")},
            **{(plural, "proxy"): proxy for plural in ("pods", "services", "nodes")},
        }
        """The handlers by resource and subresource."""

    async def open(self) -> None:
        """Read the configured files. Raises `ConfigError`."""
        await self._connections.open()

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()
