"""Addresses of objects: API resources, and keys of objects."""

import re
from typing import Generic, NamedTuple, TypeVar

import msgspec

from controller_manager.common.api.errors import InvalidName
from controller_manager.common.api.model import Object, PartialObject

T = TypeVar("T", bound=Object)
_SEGMENT = re.compile(r"[^/%\x00-\x1f\x7f]{1,4096}")
_STEPS = (".", "..")


def path_segment(name: str) -> str:
    """Return a name if it can be a segment of a URL path. Raises `InvalidName` for one that would change the path."""
    if name in _STEPS or not _SEGMENT.fullmatch(name):
        raise InvalidName(f"{name[:256]!r} can't be a name in the path of a request")
    return name


class Key(NamedTuple):
    """Namespace and name of an object; the namespace of a cluster-scoped object is empty."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """An API resource, and the type of its objects."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[T]

    def __hash__(self) -> int:
        return hash(self.plural)  # the other fields seldom differ, and hashing all of them takes four times as long

    @property
    def api_version(self) -> str:
        """Return `group/version`, or only the version in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name(self) -> str:
        """Return `plural.group`, the name in logs, metrics and permissions."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path (API concepts, Resource URI shapes); the transport escapes the segments. Raises
        `InvalidName`.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{path_segment(namespace)}" if self.namespaced and namespace else ""
        tail = "".join(f"/{path_segment(part)}" for part in (name, subresource) if part)
        return f"{root}{scope}/{self.plural}{tail}"

    def metadata_only(self) -> "Resource[PartialObject]":
        """Return the same resource with type and metadata only."""
        return Resource(self.group, self.version, self.plural, self.kind, self.namespaced, PartialObject)


def key_of(obj: Object) -> Key:
    """Return the key of an object."""
    meta = obj.metadata
    return Key(meta.namespace, meta.name)
