"""One thing that can be done, as clients are told of it: a record, how it is named, and those that concern no kind."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from apiserver_stub.openapi.definitions import META
from apiserver_stub.openapi.parameters import PATH_PARAMETERS
from controller_manager.api.platform import GROUP_DOMAIN

TEXT = "text"  # stands for a definition where the answer is no object
PHRASES: Mapping[str, str] = MappingProxyType({"200": "OK", "201": "Created", "202": "Accepted"})

_PARTS = re.compile("[.-]")
_VERSION = "io.k8s.apimachinery.pkg.version.Info"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `name` is unique and what clients name their functions after; `about` is the group,
    version and kind it works on, None for a page; `body` and `answer` name definitions, `body` may be empty; `custom`
    kinds are not part of the built-in API.
    """

    path: str
    method: str
    name: str
    sentence: str
    tag: str
    answer: str
    action: str = ""
    about: tuple[str, str, str] | None = None
    query: tuple[str, ...] = ()
    body: str = ""
    codes: tuple[str, ...] = ("200",)
    custom: bool = False

    @property
    def refs(self) -> Iterator[str]:
        """The definitions it needs."""
        return (name for name in (self.body, self.answer) if name not in ("", TEXT))

    @property
    def held(self) -> Iterator[str]:
        """The parameters in its path."""
        return (name for name in PATH_PARAMETERS if f"{{{name}}}" in self.path)

    @property
    def extensions(self) -> dict[str, Any]:
        """Return what is told of it beyond OpenAPI; nothing for a page."""
        if self.about is None:
            return {}
        about = dict(zip(("group", "version", "kind"), self.about, strict=True))
        return {"x-kubernetes-action": self.action, "x-kubernetes-group-version-kind": about}


def by_path(
    operations: Iterable[Operation],
    shared: Callable[[Operation], list[dict[str, Any]]],
    told: Callable[[Operation], dict[str, Any]],
) -> tuple[dict[str, Any], set[str]]:
    """Return the operations as `told`, by path and method, beside the parameters `shared` at their path; and the names
    of the definitions they need.
    """
    paths: dict[str, Any] = {}
    needed: set[str] = set()
    for operation in operations:
        needed.update(operation.refs)
        item = paths.setdefault(operation.path, {"parameters": shared(operation)})
        item[operation.method] = told(operation)
    return paths, needed


def root_of(group: str, version: str) -> str:
    """Return the path below which a version is served, without slashes at its ends."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def page(path: str) -> Operation:
    """Return the operation of reading what is at a path without slashes at its ends: a version, a group, all of them,
    or `version` itself.
    """
    match path.split("/"):
        case ["version"]:
            return _page(path, "getCodeVersion", "version", _VERSION)
        case ["apis"]:
            return _page(path, "getAPIVersions", "apis", f"{META}APIGroupList")
        case ["api"]:
            return _page(path, "getCoreAPIVersions", "core", f"{META}APIVersions")
        case ["apis", group]:
            return _page(path, f"get{words(group)}APIGroup", tag_of(group), f"{META}APIGroup")
        case [*_, version]:
            group = path.removesuffix(f"/{version}").removeprefix("apis/").removeprefix("api")
            name = f"get{words(group)}{version.capitalize()}APIResources"
            return _page(path, name, f"{tag_of(group)}_{version}", f"{META}APIResourceList")
    raise AssertionError(path)


def _page(path: str, name: str, tag: str, answer: str) -> Operation:
    return Operation(f"/{path}/", "get", name, "read what is served here", tag, answer)


def words(group: str) -> str:
    """Return a group within the name of an operation: `rbac.authorization.k8s.io` is `RbacAuthorization`."""
    return "".join(part.capitalize() for part in _PARTS.split(_bare(group)))


def tag_of(group: str) -> str:
    """Return the tag of a group's operations: `rbac.authorization.k8s.io` has `rbacAuthorization`."""
    found = words(group)
    return found[:1].lower() + found[1:]


def _bare(group: str) -> str:
    return group.removesuffix(f".{GROUP_DOMAIN}") if group else "core"
