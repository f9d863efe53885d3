"""What a request's method, path and query ask for (API concepts, Resource URI shapes); pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.kinds.resource_info import ResourceInfo, Subresource
from controller_manager.api.errors import ApiError, BadRequest, Details, MethodNotAllowed, NotFound
from controller_manager.serving.authentication import User
from controller_manager.serving.authorization import Attributes

_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_ON_COLLECTION = {"get": "list", "create": "create", "delete": "deletecollection"}
_DOTS = frozenset({".", ".."})
_OFF = frozenset({"0", "false"})
_PASSED_ON = "proxy"  # what follows this subresource is a path of somebody else's
_OF_NAMESPACES = frozenset({"status", "finalize"})


class RequestInfo(NamedTuple):
    """A request's attributes: what authorization looks at and what is served.

    `resource` is empty for a path that addresses no resource (`/version`, discovery); then `verb` is the HTTP
    method in lower case. For the resource `namespaces` itself, `namespace` equals `name`.
    """

    verb: str
    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def attributes(self, user: User) -> Attributes:
        """Return what authorization looks at when `user` asks for this."""
        return Attributes(user, *self)


def parse(method: str, path: str, query: Mapping[str, str]) -> RequestInfo:
    """Understand a request. Raises `BadRequest`, `NotFound` or `MethodNotAllowed`."""
    parts = _segments(path)
    if parts[0] == "api" and len(parts) > 2:
        return _resource(method, path, ("", parts[1]), parts[2:], query)
    if parts[0] == "apis" and len(parts) > 3:
        return _resource(method, path, (parts[1], parts[2]), parts[3:], query)
    return RequestInfo(method.lower(), path)


def resolve(route: RequestInfo, kinds: ResourceRegistry) -> tuple[ResourceInfo, Subresource | None]:
    """The kind a route addresses. Raises `NotFound` for an unknown one, `MethodNotAllowed` for a verb it lacks."""
    kind = kinds.find(route.group, route.version, route.resource)
    if kind is None:
        raise unknown()
    if not kind.namespaced and route.namespace and not _is_namespace_itself(route):
        raise unknown()
    if kind.namespaced and not route.namespace:
        _check_across_namespaces(route)
    if not route.subresource:
        _check_verb(route.verb, kind.verbs)
        return kind, None
    found = kind.subresources.get(route.subresource)
    if found is None:
        raise unknown()
    _check_verb(route.verb, found.verbs)
    return kind, found


def methods(path: str, kinds: ResourceRegistry) -> list[str]:
    """The HTTP methods that `path` allows (RFC 9110, section 10.2.1)."""
    return [method for method in _VERBS if _allows(path, method, kinds)]


def last_values(query: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Single-valued parameters: of a repeated one the last value counts."""
    return dict(query)


def is_on(query: Mapping[str, str], name: str) -> bool:
    """Whether a boolean parameter is set; `?watch` alone counts, and so does any value but `0` and `false`."""
    value = query.get(name)
    return value is not None and value.lower() not in _OFF


def unknown() -> NotFound:
    """The refusal of a path that addresses nothing."""
    return NotFound("the server could not find the requested resource", Details())  # clients read it unasked


def _allows(path: str, method: str, kinds: ResourceRegistry) -> bool:
    try:
        route = parse(method, path, {})
        if route.resource:
            resolve(route, kinds)
    except ApiError:
        return False
    return bool(route.resource) or method == "GET"


def _resource(method: str, path: str, of: tuple[str, str], parts: list[str], query: Mapping[str, str]) -> RequestInfo:
    verb = _VERBS.get(method)
    if verb is None:
        raise not_allowed()
    watch = False
    if parts[0] == "watch" and len(parts) > 1:
        if verb != "get":
            raise not_allowed()
        watch, parts = True, parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _OF_NAMESPACES:
            parts = parts[2:]
    if len(parts) > 3:
        if parts[2] != _PASSED_ON:
            raise unknown()
        parts = parts[:3]
    resource, name, subresource = (*parts, "", "")[:3]
    watch = watch or (verb == "get" and not name and is_on(query, "watch"))
    return RequestInfo(_precise(verb, name, subresource, watch), path, *of, resource, subresource, namespace, name)


def _precise(verb: str, name: str, subresource: str, watch: bool) -> str:
    if watch and not subresource:
        return "watch"
    if not name:
        found = _ON_COLLECTION.get(verb)
        if found is None:
            raise not_allowed()
        return found
    if verb == "create" and not subresource:
        raise not_allowed()
    return verb


def _segments(path: str) -> list[str]:
    if "%" in path or not path.isprintable():
        raise BadRequest(f"the path {path!a} has characters no path of the API has")
    parts = path.strip("/").split("/")
    if "/." in path and not _DOTS.isdisjoint(parts):
        raise BadRequest(f"the path {path} has a segment that is no name")
    if "//" in path:
        raise unknown()
    return parts


def _check_across_namespaces(route: RequestInfo) -> None:
    if route.name:
        raise unknown()
    if route.verb not in {"list", "watch"}:
        raise not_allowed()


def _is_namespace_itself(route: RequestInfo) -> bool:
    return route.resource == "namespaces" and route.namespace == route.name


def _check_verb(verb: str, allowed: frozenset[str]) -> None:
    if verb not in allowed:
        raise not_allowed()


def not_allowed() -> MethodNotAllowed:
    """The refusal of a verb that a resource does not have."""
    return MethodNotAllowed("the server does not allow this method on the requested resource", Details())
