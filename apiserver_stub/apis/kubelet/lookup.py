"""Finds the pods, services and nodes of a request in the store."""

import asyncio
import socket

from msgspec.structs import replace

from apiserver_stub.apis.kubelet.locations import (
    ENDPOINTS,
    NODE,
    POD,
    SERVICE,
    Kubelet,
    Location,
    PodLocation,
    ProxyTarget,
    check_address,
    kubelet_of,
    location_of_service,
    port_name,
)
from apiserver_stub.common.flags import KubeletOptions
from apiserver_stub.request.api_request import APIRequest, Item
from apiserver_stub.verbs.get import get
from apiserver_stub.verbs.scope import RequestScope
from controller_manager.common.api.core import Endpoints
from controller_manager.common.api.errors import BadRequest, NotFound, not_found
from controller_manager.common.base.random import random_source

_LOOKUP = 10.0  # timeout of resolving a host name in seconds


class Lookup:
    """Finds the objects that requests name. Like upstream, raises `NotFound` with the requested resource."""

    def __init__(self, scope: RequestScope, options: KubeletOptions) -> None:
        self._scope = scope
        self._types = tuple(options.kubelet_preferred_address_types)
        self._port = options.kubelet_port

    async def pod(self, request: APIRequest, name: str) -> PodLocation:
        """Return a pod in the request's namespace."""
        return POD.decode(await self._object(request, "pods", name))

    async def kubelet(self, request: APIRequest, node: str) -> Kubelet:
        """Return the kubelet of a node. Raises `UnknownError` if the node has no address."""
        return kubelet_of(NODE.decode(await self._object(request, "nodes", node)), self._types, self._port)

    async def node_location(self, request: APIRequest, target: ProxyTarget) -> tuple[Kubelet, Location | None]:
        """Return the kubelet of a node, and the location of another port of the node if one is requested. Raises
        `BadRequest` for a forbidden address.
        """
        kubelet = await self.kubelet(request, target.name)
        for address in await _addresses(kubelet.host):
            check_address(address)
        if target.port in ("", str(kubelet.port)):
            return kubelet, None
        return kubelet, target.location(kubelet.host, target.port)

    async def service_location(self, request: APIRequest, target: ProxyTarget) -> Location:
        """Return the location of a service's endpoint. Raises `ServiceUnavailable`."""
        port = target.port
        if port.lstrip("+-").isdecimal():
            port = port_name(SERVICE.decode(await self._object(request, "services", target.name)), target)
        endpoints: Endpoints = ENDPOINTS.decode(await self._object(request, "endpoints", target.name))

        def is_of_pod(namespace: str, name: str, address: str) -> bool:
            row = self._scope.store.get("pods", f"{namespace}/{name}")
            if row is None or namespace != request.namespace:
                return False
            return any(one.ip == address for one in POD.decode(row.data).status.pod_ips)

        return location_of_service(endpoints, target, port, request.name, is_of_pod, _any_of)

    async def _object(self, request: APIRequest, plural: str, name: str) -> bytes:
        kind = self._scope.kinds.find("", "v1", plural)
        if kind is None:
            raise not_found("", request.kind.plural, name)
        try:
            reply = await get(self._scope, replace(request, kind=kind, subresource=None, name=name, query={}))
        except NotFound:
            raise not_found("", request.kind.plural, name) from None
        assert isinstance(reply.body, Item)
        return reply.body.data


async def _addresses(host: str) -> list[str]:
    """Return the addresses of a host. Raises `BadRequest` if there are none."""
    try:
        async with asyncio.timeout(_LOOKUP):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError) as error:
        raise BadRequest(f"lookup {host}: {error}") from None
    return [str(address[0]) for *_, address in found]


def _any_of(count: int) -> int:
    return int(random_source().uniform(0, count)) % count
