"""An object in the versions in which somebody recorded fields of it, and what a write changed in each."""

from typing import Any, NamedTuple

from apiserver_stub.kinds.registry import Kinds
from apiserver_stub.kinds.resource_info import Convert, ResourceInfo
from apiserver_stub.patch.of_schema import typed
from apiserver_stub.patch.typed import Changes, Typed

Tree = dict[str, Any]

# Who has which is the server's to know, and never a client's (KEP-555).
UNTRACKED = frozenset({
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
    "resourceVersion",
})  # fmt: skip


class Version(NamedTuple):
    """The type of objects in a version, and how they get there from the version of a call, and back."""

    typed: Typed
    into: Convert
    back: Convert


class Versions:
    """The versions of a kind, seen from the one a call speaks of."""

    def __init__(self, kinds: Kinds, kind: ResourceInfo) -> None:
        self._kinds = kinds
        self._kind = kind
        self.own = Version(typed(kind.schema), _same, _same)

    def find(self, api_version: str) -> Version | None:
        """A version by its name; None when the kind is not served in it."""
        if api_version == self._kind.api_version:
            return self.own
        group, _, version = api_version.rpartition("/")
        other = self._kinds.find(group, version, self._kind.plural)
        if other is None or other.storage != self._kind.storage:
            return None
        return Version(typed(other.schema), _conversion(self._kind, other), _conversion(other, self._kind))


class Comparison:
    """What is different between two states of an object, given in the version of a call."""

    def __init__(self, versions: Versions, old: Tree, new: Tree) -> None:
        self._versions = versions
        self._states = old, new
        self._found: dict[str, Changes | None] = {}

    def seen_in(self, api_version: str) -> Changes | None:
        """The difference in a version; None when there is no such version."""
        if api_version not in self._found:
            self._found[api_version] = self._compared(self._versions.find(api_version))
        return self._found[api_version]

    def _compared(self, version: Version | None) -> Changes | None:
        if version is None:
            return None
        old, new = (tracked(version.into(state)) for state in self._states)
        return version.typed.compare(old, new)


def tracked(tree: Tree) -> Tree:
    """The object without the fields nobody owns."""
    metadata = {name: value for name, value in tree["metadata"].items() if name not in UNTRACKED}
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
