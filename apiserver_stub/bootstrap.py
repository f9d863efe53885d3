"""What must exist in every cluster: the system namespaces, the service through which pods find this server, and the
authorities whose client certificates it believes, for servers that leave to it who their callers are.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import msgspec

from controller_manager.api.errors import AlreadyExists, InternalError, NotFound, from_response
from controller_manager.api.platform import (
    ADMIN_GROUP,
    DEFAULT_NAMESPACES,
    GROUP_DOMAIN,
    PLATFORM_DOMAIN,
    SYSTEM_NAMESPACE,
)
from controller_manager.api.timestamps import format_time
from controller_manager.api.wire import Certificate, Request, Response
from controller_manager.base.clock import utc_now

Tree = dict[str, Any]
Handle = Callable[[Request], Awaitable[Response]]

_SELF = Certificate("system:apiserver", (ADMIN_GROUP,))
_NAME = "kubernetes"
_NAMESPACES = "/api/v1/namespaces"
_IN_DEFAULT = f"{_NAMESPACES}/default"
_SLICES = f"/apis/discovery.{GROUP_DOMAIN}/v1/namespaces/default/endpointslices"
_RANGES = f"/apis/networking.{GROUP_DOMAIN}/v1/servicecidrs"
_CONFIG_MAPS = f"{_NAMESPACES}/{SYSTEM_NAMESPACE}/configmaps"
_ROLES = f"/apis/rbac.authorization.{GROUP_DOMAIN}/v1/namespaces/{SYSTEM_NAMESPACE}/roles"
_AUTHENTICATION = "extension-apiserver-authentication"
_READER = f"{_AUTHENTICATION}-reader"


@dataclass(frozen=True, slots=True)
class Address:
    """Where this server is reached: the address of its service, the address and port behind that, and the ranges from
    which services are given theirs.
    """

    cluster_ip: str
    address: str
    port: int
    ranges: tuple[str, ...] = ()


class Bootstrap:
    """Brings the objects about through the server itself, as its own user; running it again changes nothing.

    `authorities` (PEM) are published, if there are any.
    """

    def __init__(self, handle: Handle, address: Address, authorities: bytes = b"") -> None:
        self._handle = handle
        self._address = address
        self._authorities = authorities

    async def run(self) -> None:
        """Create what is missing and correct what no longer holds. Raises the refusal of a request."""
        for name in DEFAULT_NAMESPACES:
            wanted = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}
            await self._ensure(_NAMESPACES, name, wanted)
        if self._address.ranges:
            await self._ensure(_RANGES, _NAME, {}, _service_range(self._address))
        await self._ensure(f"{_IN_DEFAULT}/services", _NAME, _service(self._address), _given(self._address))
        await self._ensure(f"{_IN_DEFAULT}/endpoints", _NAME, _endpoints(self._address))
        await self._ensure(_SLICES, _NAME, _endpoint_slice(self._address))
        await self._ensure(_ROLES, _READER, _reader_role())
        if self._authorities:
            await self._ensure(_CONFIG_MAPS, _AUTHENTICATION, _published(self._authorities))

    async def _ensure(self, collection: str, name: str, wanted: Tree, born: Tree | None = None) -> None:
        """Bring about what is wanted; what it is `born` with besides stays as it was then."""
        # What cannot be read must not keep the server from starting: it is removed through the server.
        with suppress(InternalError):
            await self._bring_about(collection, name, wanted, born or {})

    async def _bring_about(self, collection: str, name: str, wanted: Tree, born: Tree) -> None:
        path = f"{collection}/{name}"
        try:
            found = await self._send("GET", path)
        except NotFound:
            await self._create(collection, _over(wanted, born))
            return
        corrected = found | {part: _over(found.get(part), value) for part, value in wanted.items()}
        if corrected != found:
            await self._send("PUT", path, corrected)

    async def _create(self, collection: str, wanted: Tree) -> None:
        try:
            await self._send("POST", collection, wanted)
        except AlreadyExists:
            return

    async def _send(self, method: str, path: str, body: Tree | None = None) -> Tree:
        data = b"" if body is None else msgspec.json.encode(body)
        headers = {"content-type": "application/json", "accept": "application/json"}
        answer = await self._handle(Request(method, path, (), headers, data, _SELF))
        assert isinstance(answer.body, bytes)
        if answer.status >= 400:
            raise from_response(answer.status, answer.body)
        found: Tree = msgspec.json.decode(answer.body)
        return found


def _service(where: Address) -> Tree:
    """The service `kubernetes` of the namespace `default`."""
    return {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"name": _NAME, "labels": {"component": "apiserver", "provider": _NAME}},
        "spec": {
            "type": "ClusterIP",
            "internalTrafficPolicy": "Cluster",
            "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": where.port}],
        },
    }


def _given(where: Address) -> Tree:
    """Its address, which it keeps if the range of addresses is another one day."""
    family = f"IPv{ip_address(where.cluster_ip).version}"
    addresses = {"clusterIP": where.cluster_ip, "clusterIPs": [where.cluster_ip]}
    return {"spec": {**addresses, "ipFamilies": [family], "ipFamilyPolicy": "SingleStack"}}


def _service_range(where: Address) -> Tree:
    """The ranges of addresses as an object."""
    ready = {"type": "Ready", "status": "True", "reason": "", "message": "Kubernetes Service CIDR is ready"}
    return {
        "kind": "ServiceCIDR",
        "apiVersion": f"networking.{GROUP_DOMAIN}/v1",
        "metadata": {"name": _NAME},
        "spec": {"cidrs": list(where.ranges)},
        "status": {"conditions": [{**ready, "lastTransitionTime": format_time(utc_now())}]},
    }


def _endpoints(where: Address) -> Tree:
    """The Endpoints of that service; nobody need mirror them into slices."""
    return {
        "kind": "Endpoints",
        "apiVersion": "v1",
        "metadata": {"name": _NAME, "labels": {f"endpointslice.{PLATFORM_DOMAIN}/skip-mirror": "true"}},
        "subsets": [
            {
                "addresses": [{"ip": where.address}],
                "ports": [{"name": "https", "port": where.port, "protocol": "TCP"}],
            }
        ],
    }


def _endpoint_slice(where: Address) -> Tree:
    """The slice of that service."""
    return {
        "kind": "EndpointSlice",
        "apiVersion": f"discovery.{GROUP_DOMAIN}/v1",
        "metadata": {"name": _NAME, "labels": {f"{PLATFORM_DOMAIN}/service-name": _NAME}},
        "addressType": f"IPv{ip_address(where.address).version}",
        "endpoints": [{"addresses": [where.address], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": where.port, "protocol": "TCP"}],
    }


def _published(authorities: bytes) -> Tree:
    """Whose client certificates are believed; what others publish beside that stays."""
    return {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": _AUTHENTICATION},
        "data": {"client-ca-file": authorities.decode("utf-8", "replace")},
    }


def _reader_role() -> Tree:
    """The role of those who may read that."""
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [_AUTHENTICATION]}
    return {
        "kind": "Role",
        "apiVersion": f"rbac.authorization.{GROUP_DOMAIN}/v1",
        "metadata": {"name": _READER, "labels": {f"{PLATFORM_DOMAIN}/bootstrapping": "rbac-defaults"}},
        "rules": [{**rule, "verbs": ["get", "list", "watch"]}],
    }


def _over(found: Any, wanted: Any) -> Any:
    """`found` with what is wanted laid over it; a list is taken whole."""
    if not isinstance(found, dict) or not isinstance(wanted, dict):
        return wanted
    return found | {name: _over(found.get(name), value) for name, value in wanted.items()}
