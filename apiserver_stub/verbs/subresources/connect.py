"""Connections to pods, services and nodes: admission is shown their options; nobody here can make them."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from apiserver_stub.api_request import APIRequest, Reply, Tree
from apiserver_stub.verbs.get import get
from apiserver_stub.verbs.scope import RequestScope
from controller_manager.api.errors import BadRequest

_FALSE = ("", "0", "false")


def _is_on(values: Sequence[str]) -> bool:
    return values[0].lower() not in _FALSE


def _first(values: Sequence[str]) -> str:
    return values[0]


def _numbers(values: Sequence[str]) -> list[int]:
    return [int(value) for value in values if value.isascii() and value.isdecimal()]


_STREAMS: Mapping[str, Callable[[Sequence[str]], Any]] = MappingProxyType({
    "stdin": _is_on, "stdout": _is_on, "stderr": _is_on, "tty": _is_on, "container": _first,
})  # fmt: skip
# The fields of options by their kind, and what makes them of the values of a parameter.
_OPTIONS: Mapping[str, Mapping[str, Callable[[Sequence[str]], Any]]] = MappingProxyType({
    "PodAttachOptions": _STREAMS,
    "PodExecOptions": {**_STREAMS, "command": list},
    "PodPortForwardOptions": {"ports": _numbers},
    "PodProxyOptions": {"path": _first}, "ServiceProxyOptions": {"path": _first}, "NodeProxyOptions": {"path": _first},
})  # fmt: skip


async def connect(scope: RequestScope, request: APIRequest) -> Reply:
    """Refuse a request, whatever the method, and without ever upgrading a connection. Raises what admission does, then
    `NotFound` when there is no such object, else `BadRequest` with one sentence. An object may be named with a scheme
    and a port, as proxies do.
    """
    subresource = request.subresource
    assert subresource is not None
    if subresource.kind in _OPTIONS:
        await scope.admit(request, "connect", connection_options(request))
    scheme, _, rest = request.name.partition(":")
    name = rest.partition(":")[0] if ":" in rest else scheme
    await get(scope, replace(request, name=name, query={}))
    raise BadRequest(
        f'the subresource "{subresource.name}" of {request.kind.plural} "{name}" is not served by this server'
    )


def connection_options(request: APIRequest) -> Tree:
    """Return the options of a connection: an object that parameters, and for a proxy the rest of the path, tell of."""
    subresource = request.subresource
    assert subresource is not None
    said: dict[str, list[str]] = {}
    for name, value in request.http.query:
        said.setdefault(name, []).append(value)
    _, behind, path = request.http.path.partition(f"/{subresource.name}/")
    if behind:
        said["path"] = [f"/{path}"]
    version = f"{subresource.group}/{subresource.version}" if subresource.group else subresource.version
    made = {name: make(said[name]) for name, make in _OPTIONS[subresource.kind].items() if name in said}
    told = {name: value for name, value in made.items() if value}
    return {"kind": subresource.kind, "apiVersion": version, **told}
