"""Parse a request's method, path and query (API concepts, Resource URI shapes); pure."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType

from msgspec import Struct

from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.kinds.resource_info import ResourceInfo, Subresource
from controller_manager.common.api.errors import ApiError, BadRequest, Details, MethodNotAllowed, NotFound, not_found
from controller_manager.common.api.selectors import FieldSelector
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import NO_SELECTORS, AuthorizerAttributes, Selectors

_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_ON_COLLECTION = {"get": "list", "delete": "deletecollection"}
_FIELDS, _LABELS = "fieldSelector", "labelSelector"
_WITHOUT_NAME = frozenset({"list", "watch", "create", "deletecollection"})
_WITH_NAME = frozenset({"get", "watch", "update", "patch", "delete"})
_DOTS = frozenset({".", ".."})
_NO_QUERY: Mapping[str, str] = MappingProxyType({})
_MOST_KEPT, _LONGEST_KEPT = 4096, 256  # number and maximum length of cached paths
_OFF = frozenset({"0", "false"})
_PASSED_ON = "proxy"  # the path after this subresource belongs to the backend
_LONG_VERBS = frozenset({"watch", "proxy"})
_LONG_SUBRESOURCES = frozenset({"attach", "exec", "proxy", "log", "portforward"})
_OF_NAMESPACES = frozenset({"status", "finalize"})


class RequestInfo(Struct, frozen=True, gc=False):
    """The attributes of a request, used for authorization and routing.

    `resource` is empty for non-resource paths (`/version`, discovery); then `verb` is the HTTP method in lower case. An
    unsupported method leaves `verb` empty. For the resource `namespaces`, `namespace` equals `name`. `trailing` is the
    path after a subresource. Selectors are set for verbs on collections, unparsed.
    """

    verb: str
    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    trailing: str = ""
    field_selector: str = ""
    label_selector: str = ""

    @classmethod
    def of(cls, method: str, path: str, query: Mapping[str, str]) -> "RequestInfo":
        """Return the attributes of a request, served or not. Paths outside the API have no resource."""
        return cls._read(method, path, query) if query or len(path) > _LONGEST_KEPT else _remembered(method, path)

    @classmethod
    def _read(cls, method: str, path: str, query: Mapping[str, str]) -> "RequestInfo":
        parts = path.strip("/").split("/")
        if parts[0] == "api" and len(parts) > 2:
            found = _resource(method, path, "", parts[1], parts[2:], query)
        elif parts[0] == "apis" and len(parts) > 3:
            found = _resource(method, path, parts[1], parts[2], parts[3:], query)
        else:
            return cls(method.lower(), path)
        if _problem(path) is None or _problem(_own_part(found)) is None:
            return found
        return cls(method.lower(), path)

    @property
    def is_long_running(self) -> bool:
        """Whether the response may be a stream without an end."""
        return self.verb in _LONG_VERBS or self.subresource in _LONG_SUBRESOURCES

    @property
    def object_name(self) -> str:
        """The name of the requested object, from the path or from the field selector of a list or watch; empty if there
        may be several objects.
        """
        if not self.field_selector or self.verb == "deletecollection":
            return self.name
        name = exact_field(self.field_selector, "metadata.name")
        return "" if name in _DOTS or "/" in name or "%" in name else name

    def attributes(self, user: User) -> AuthorizerAttributes:
        """Return the authorization attributes of this request for `user`."""
        has_selectors = self.field_selector or self.label_selector
        return AuthorizerAttributes(
            user,
            self.verb,
            self.path,
            self.group,
            self.version,
            self.resource,
            self.subresource,
            self.namespace,
            self.object_name,
            Selectors(self.field_selector, self.label_selector) if has_selectors else NO_SELECTORS,
        )


@lru_cache(maxsize=_MOST_KEPT)
def _remembered(method: str, path: str) -> RequestInfo:
    """Return the attributes of a request without a query. Cached, because clients repeat the same requests."""
    return RequestInfo._read(method, path, _NO_QUERY)


def check_path(path: str) -> None:
    """Raise `BadRequest` or `NotFound` for a path that no API has."""
    problem = _problem(path)
    if problem is not None:
        raise problem


def resolve(info: RequestInfo, kinds: ResourceRegistry) -> tuple[ResourceInfo, Subresource | None]:
    """Return the kind and the subresource of a request.

    Raises `NotFound` for an unknown one, `MethodNotAllowed` for an unsupported verb. A method without a verb (OPTIONS)
    is allowed for proxied requests.
    """
    kind = kinds.find(info.group, info.version, info.resource)
    if kind is None:
        raise unknown()
    if not kind.namespaced and info.namespace and not _is_namespace_itself(info):
        raise unknown()
    if kind.namespaced and not info.namespace:
        if kind.custom and info.verb not in ("list", "watch"):
            raise unknown()
        _check_across_namespaces(info)
    if not info.subresource:
        if kind.custom and not info.name and info.verb in ("update", "patch"):
            raise BadRequest("name must be provided")
        if info.verb not in kind.verbs or info.verb not in (_WITH_NAME if info.name else _WITHOUT_NAME):
            raise not_allowed()
        return kind, None
    subresource = kind.subresources.get(info.subresource)
    if subresource is None and kind.custom:
        raise not_found(kind.group, kind.plural, info.name)
    if subresource is None or (info.trailing and info.subresource != _PASSED_ON):
        raise unknown()
    if info.verb not in subresource.verbs and (info.verb or info.subresource != _PASSED_ON):
        raise _not_supported(info.verb, kind) if kind.custom else not_allowed()
    return kind, subresource


def methods(path: str, kinds: ResourceRegistry) -> list[str]:
    """Return the HTTP methods that `path` allows (RFC 9110, section 10.2.1)."""
    return [method for method in _VERBS if _allows(path, method, kinds)]


def last_values(query: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return single-valued parameters: of a repeated one the last value counts."""
    return dict(query)


def is_on(query: Mapping[str, str], name: str) -> bool:
    """Return whether a boolean parameter is set: any value except `0` and `false`, including no value (`?watch`)."""
    value = query.get(name)
    return value is not None and value.lower() not in _OFF


def exact_field(selector: str, path: str) -> str:
    """Return the value that a field selector requires of a field; empty if there is no such requirement, or if the
    selector is malformed or larger than lists accept. It must be cheap, because callers may be unauthenticated.
    """
    if path not in selector:
        return ""
    try:
        return FieldSelector.parse_bounded(selector).exact(path) or ""
    except BadRequest:
        return ""


def unknown() -> NotFound:
    """Return the error for a path that addresses nothing."""
    return NotFound("the server could not find the requested resource", Details())  # clients read it unasked


def _not_supported(verb: str, kind: ResourceInfo) -> MethodNotAllowed:
    why = f'{verb} is not supported on resources of kind "{kind.name}"'
    return MethodNotAllowed(why, Details(group=kind.group, kind=kind.plural))


def not_allowed() -> MethodNotAllowed:
    """Return the refusal of a verb that a resource does not have."""
    return MethodNotAllowed("the server does not allow this method on the requested resource", Details())


def _resource(
    method: str, path: str, group: str, version: str, parts: list[str], query: Mapping[str, str]
) -> RequestInfo:
    verb = _VERBS.get(method, "")
    if parts[0] == "watch" and len(parts) > 1:
        verb, parts = "watch" if verb == "get" else "", parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _OF_NAMESPACES:
            parts = parts[2:]
    count = len(parts)
    if count == 1:
        if not query:
            return RequestInfo(_ON_COLLECTION.get(verb, verb), path, group, version, parts[0], "", namespace)
        is_watch = verb == "get" and is_on(query, "watch")
        many = _ON_COLLECTION.get(verb)  # a watch by its path has no selectors that count
        verb = "watch" if is_watch else many or verb
        of_fields, of_labels = (query.get(_FIELDS, ""), query.get(_LABELS, "")) if many else ("", "")
        return RequestInfo(verb, path, group, version, parts[0], "", namespace, "", "", of_fields, of_labels)
    if count == 2:
        return RequestInfo(verb, path, group, version, parts[0], "", namespace, parts[1])
    resource, name, subresource, *trailing = parts
    return RequestInfo(verb, path, group, version, resource, subresource, namespace, name, "/".join(trailing))


def _problem(path: str) -> ApiError | None:
    if "%" in path or not path.isprintable():
        return BadRequest(f"the path {path!a} has characters no path of the API has")
    if "/." in path and not _DOTS.isdisjoint(path.split("/")):
        return BadRequest(f"the path {path} has a segment that is not a valid name")
    return unknown() if "//" in path else None


def _own_part(info: RequestInfo) -> str:
    """Return the path without the part that belongs to a backend."""
    if info.subresource != _PASSED_ON or not info.trailing:
        return info.path
    return info.path.rstrip("/").removesuffix(info.trailing)


def _allows(path: str, method: str, kinds: ResourceRegistry) -> bool:
    info = RequestInfo.of(method, path, {})
    if not info.resource:
        return method == "GET"
    try:
        resolve(info, kinds)
    except ApiError:
        return False
    return True


def _check_across_namespaces(info: RequestInfo) -> None:
    if info.name:
        raise unknown()
    if info.verb not in {"list", "watch"}:
        raise not_allowed()


def _is_namespace_itself(info: RequestInfo) -> bool:
    return info.resource == "namespaces" and info.namespace == info.name
