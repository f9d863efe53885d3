"""Prepare objects of a kind for storage: fields that each subresource may write, generations, start of a deletion.

A `Strategy` is a row of data and small functions (`kinds/strategies/kinds.py`). No kind is named here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from apiserver_stub.kinds.gated_fields import Fields, drop_gated
from apiserver_stub.kinds.values.trees import get_in, put_in, same_but
from controller_manager.common.api.tree import Tree

FieldNames = tuple[str, ...]
# Returns the new spec from the object written through a subresource and the old object.
Merge = Callable[[Tree, Tree], Tree]

STATUS: Mapping[str, tuple[FieldNames, ...]] = MappingProxyType({"status": (("status",),)})
NO_PARTS: Mapping[str, tuple[FieldNames, ...]] = MappingProxyType({})
METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
_NONE_GATED: Fields = MappingProxyType({})
_NONE_SHARED: Mapping[str, Merge] = MappingProxyType({})
_NONE_RESET: Mapping[str, tuple[str, ...]] = MappingProxyType({})
# Set by the server only. An update without them keeps them.
_FILLED = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
_NOT_SENT = ("deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")
_NOT_COUNTED = frozenset({"metadata", "status", "kind", "apiVersion"})


def nothing(_tree: Tree) -> None:
    """Do nothing (default for optional steps)."""


def _no_update(_new: Tree, _old: Tree, _part: str) -> None:
    pass


def _immediately(_tree: Tree, _requested: int | None) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Strategy:
    """The rules for writes of one kind.

    * `subresources` names the paths that only a subresource may write. `shared` merges what a subresource writes into
      fields that updates of the whole object may change too.
    * `generation`: whether `metadata.generation` counts changes, from `first_generation` on. Changes of `uncounted`
      fields do not count. Changes of the metadata fields in `counted_metadata` do, but not through a subresource.
    * `reset_fields` are the metadata fields that a subresource may not change. They are reset.
    * `on_create` sets the fields of a new object that the server owns, `on_update(new, old, subresource)` those of an
      update. `gated` are the fields of disabled features.
    * `grace_period(tree, requested)` returns the seconds that a delete waits. `on_delete` records its start.
    * `finalizers` is the path of a second list of finalizers. `deletion_finalizer` is the one that the server adds when
      the deletion starts. The start of the deletion then does not change the generation.
    * `dependents` is the default propagation policy of a delete, empty if objects have no dependents.
    * `status_on_create` keeps the status of a create. `creates_on_update` lets a PUT create a missing object.
      `unconditional_update` accepts updates without a resourceVersion.
    * `undeletable` are the names of objects that a delete of one object does not remove. `shows_deleted` answers a
      delete with the object instead of a `Status`, `lists_deleted` a deletecollection with the list of the objects.
    * `has_ttl`: objects expire some time after their last write.
    """

    subresources: Mapping[str, tuple[FieldNames, ...]] = field(default_factory=lambda: NO_PARTS)
    shared: Mapping[str, Merge] = field(default_factory=lambda: _NONE_SHARED)
    generation: bool = False
    first_generation: int = 1
    uncounted: frozenset[str] = _NOT_COUNTED
    counted_metadata: frozenset[str] = frozenset()
    reset_fields: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NONE_RESET)
    on_create: Callable[[Tree], None] = nothing
    on_update: Callable[[Tree, Tree, str], None] = _no_update
    grace_period: Callable[[Tree, int | None], int] = _immediately
    on_delete: Callable[[Tree], None] = nothing
    finalizers: FieldNames = ()
    deletion_finalizer: str = ""
    dependents: str = "Background"
    status_on_create: bool = False
    creates_on_update: bool = False
    unconditional_update: bool = True
    undeletable: frozenset[str] = frozenset()
    shows_deleted: bool = False
    lists_deleted: bool = True
    has_ttl: bool = False
    gated: Fields = field(default_factory=lambda: _NONE_GATED)

    @property
    def graceful(self) -> bool:
        """Return whether a delete gives objects of this kind a grace period."""
        return self.grace_period is not _immediately

    def serves(self, subresource: str) -> bool:
        """Return whether a subresource is a part of the object that is read and written like the object."""
        return subresource in self.subresources or subresource in self.shared

    def prepare_create(self, new: Tree) -> None:
        """Remove what a client may not set on a new object and set the fields that the server owns. The caller has
        already set name, uid and creationTimestamp.
        """
        if "status" in self.subresources and not self.status_on_create:
            new["status"] = {}
        self.begin_metadata(new.setdefault("metadata", {}))
        if self.gated:
            drop_gated(self.gated, new)
        self.on_create(new)

    def begin_metadata(self, metadata: Tree) -> None:
        """Do the same for the metadata."""
        self.forget(metadata)
        if self.generation and self.first_generation:
            metadata["generation"] = self.first_generation

    @staticmethod
    def forget(metadata: Tree) -> None:
        """Remove metadata that only the server sets."""
        if not metadata.keys().isdisjoint(_NOT_SENT):
            for name in _NOT_SENT:
                metadata.pop(name, None)

    def prepare_update(self, new: Tree, old: Tree) -> None:
        """Keep the fields of subresources and of the server from `old`, and count the change of the rest."""
        for paths in self.subresources.values():
            for path in paths:
                if new.get(path[0]) is not old.get(path[0]):
                    put_in(new, path, get_in(old, path))
        if self.gated:
            drop_gated(self.gated, new, old)
        self.on_update(new, old, "")
        self._own_metadata(new, old, counted=self.counted_metadata)

    def prepare_subresource(self, name: str, new: Tree, old: Tree) -> None:
        """Reset `new` to the old object except for the fields that the subresource `name` may write, in place."""
        written = [(path, get_in(new, path)) for path in self.subresources.get(name, ())]
        if name in self.shared:
            written.append((("spec",), self.shared[name](new, old)))
        metadata = new.get("metadata", {})
        for kept in self.reset_fields.get(name, ()):
            put_in(metadata, (kept,), old["metadata"].get(kept))
        new.clear()
        new.update(old, metadata=metadata)
        for path, value in written:
            put_in(new, path, value)
        if name in self.gated:
            drop_gated({name: self.gated[name]}, new, old)
        self.on_update(new, old, name)
        self._own_metadata(new, old)

    def mark_deleted(self, tree: Tree) -> None:
        """Record the start of a deletion. The caller sets `deletionTimestamp` and the grace period."""
        self.on_delete(tree)
        count = tree["metadata"].get("generation")
        if count and not self.deletion_finalizer:
            tree["metadata"]["generation"] = count + 1

    def still_held(self, tree: Tree) -> bool:
        """Return whether finalizers prevent the removal."""
        return bool(tree["metadata"].get("finalizers") or (self.finalizers and get_in(tree, self.finalizers)))

    def _own_metadata(self, new: Tree, old: Tree, *, counted: frozenset[str] = frozenset()) -> None:
        metadata, before = new.setdefault("metadata", {}), old["metadata"]
        metadata.pop("selfLink", None)
        if metadata.get("creationTimestamp") != before.get("creationTimestamp"):
            put_in(metadata, ("creationTimestamp",), before.get("creationTimestamp"))
        for name in _FILLED:
            if name not in metadata and name in before:
                metadata[name] = before[name]
        count = before.get("generation", 0)
        is_counted = self.generation and not same_but(self.uncounted, new, old)
        if is_counted or any((metadata.get(name) or {}) != (before.get(name) or {}) for name in counted):
            count += 1
        put_in(metadata, ("generation",), count or None)
