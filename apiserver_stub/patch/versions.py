"""The versions of an object in which fields of it are recorded, and what a write changed in each."""

from typing import Any, NamedTuple

from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.kinds.resource_info import Convert, ResourceInfo
from apiserver_stub.patch.typed import FieldChanges, Typed
from apiserver_stub.patch.typed_objects import type_of

Tree = dict[str, Any]

# Fields of metadata that no manager owns (KEP-555).
UNOWNED = frozenset({
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
    "resourceVersion",
})  # fmt: skip


class Version(NamedTuple):
    """The type of objects in a version, and the conversions into it from the version of a request, and back."""

    typed: Typed
    into: Convert
    back: Convert


class Versions:
    """The versions of a kind, seen from that of a request."""

    def __init__(self, kinds: ResourceRegistry, kind: ResourceInfo) -> None:
        self._kinds = kinds
        self._kind = kind
        self.own = Version(type_of(kind.schema), _same, _same)

    def find(self, api_version: str) -> Version | None:
        """Return a version by its name; None if the kind is not served in it."""
        if api_version == self._kind.api_version:
            return self.own
        group, _, version = api_version.rpartition("/")
        other = self._kinds.find(group, version, self._kind.plural)
        if other is None or other.storage != self._kind.storage:
            return None
        return Version(type_of(other.schema), _conversion(self._kind, other), _conversion(other, self._kind))


class Comparison:
    """The differences between two states of an object, given in the version of a request."""

    def __init__(self, versions: Versions, old: Tree, new: Tree) -> None:
        self._versions = versions
        self._states = old, new
        self._found: dict[str, FieldChanges | None] = {}

    def changes_in(self, api_version: str) -> FieldChanges | None:
        """Return the difference in a version; None if there is no such version."""
        if api_version not in self._found:
            self._found[api_version] = self._compared(self._versions.find(api_version))
        return self._found[api_version]

    def _compared(self, version: Version | None) -> FieldChanges | None:
        if version is None:
            return None
        old, new = (owned_part(version.into(state)) for state in self._states)
        return version.typed.compare(old, new)


def owned_part(tree: Tree) -> Tree:
    """Return the object without the fields that nobody owns."""
    metadata = {name: value for name, value in tree["metadata"].items() if name not in UNOWNED}
    rest = {name: value for name, value in tree.items() if name not in ("apiVersion", "kind")}
    rest["metadata"] = metadata
    return rest


def _same(tree: Tree) -> Tree:
    return tree


def _conversion(one: ResourceInfo, other: ResourceInfo) -> Convert:
    def convert(tree: Tree) -> Tree:
        stored = one.to_storage(tree) if one.to_storage else tree
        return other.from_storage(stored) if other.from_storage else stored

    return convert
