"""Prepare objects of a kind for storage: the fields each subresource may write, generations, how deletions begin.

A kind's `Strategy` is a row of data and tiny functions (`kinds/strategies.py`); nothing here names a kind.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from apiserver_stub.kinds.gated_fields import Fields, drop_gated
from apiserver_stub.kinds.values.trees import get_in, put_in, same_but
from controller_manager.common.api.tree import Tree

FieldNames = tuple[str, ...]
# From what the writer of a subresource sent, and the old object, to the new spec.
Merge = Callable[[Tree, Tree], Tree]

STATUS: Mapping[str, tuple[FieldNames, ...]] = MappingProxyType({"status": (("status",),)})
NO_PARTS: Mapping[str, tuple[FieldNames, ...]] = MappingProxyType({})
METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
_NONE_GATED: Fields = MappingProxyType({})
_NONE_SHARED: Mapping[str, Merge] = MappingProxyType({})
_NONE_RESET: Mapping[str, tuple[str, ...]] = MappingProxyType({})
# Written by the server alone. A client that leaves them out of an update means "as they are".
_FILLED = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
_NOT_SENT = ("deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")
_NOT_COUNTED = frozenset({"metadata", "status", "kind", "apiVersion"})


def nothing(_tree: Tree) -> None:
    """The step of a kind that has none."""


def _nothing_owed(_new: Tree, _old: Tree, _part: str) -> None:
    pass


def _immediately(_tree: Tree, _requested: int | None) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Strategy:
    """The rules of a kind.

    `subresources` names for each subresource the paths that only it may write, `shared` merges what a subresource
    writes where updates of the whole reach too (and are held to other rules). `generation` says whether
    `metadata.generation` counts the changes of all but the `uncounted` fields, from `first_generation` on, and
    `counted_metadata` names the fields of metadata whose changes count too, through no subresource. `reset_fields` are,
    by subresource, the fields of metadata it may not change, which are reset. `on_create` fills what the server owns of
    a new object, `on_update(new, old, subresource)` what it owns of an update, with the subresource it comes through or
    none; `grace_period(tree, requested)` is the seconds a delete waits; `on_delete` notes the beginning
    of a deletion; `finalizers` is the path of a second list that holds a deletion; `deletion_finalizer` is what the
    server holds each object by whose deletion begins, which then counts as no change of it, until it has done its
    part; `dependents` is the propagation policy of a delete that names none, empty where objects have no
    dependents. `status_on_create` lets the creator set the status; `creates_on_update` says whether a PUT of a
    missing object creates it, `unconditional_update` whether an update without a resourceVersion is accepted,
    `undeletable` are the names of objects that a delete of one object does not remove, `shows_deleted` says whether a
    delete is answered with the object instead of a `Status`, `lists_deleted` whether a
    deletecollection is answered with the list of the objects instead of a `Status`, `has_ttl` whether objects
    expire that nobody writes any more. `gated` are the fields of features that are off.
    """

    subresources: Mapping[str, tuple[FieldNames, ...]] = field(default_factory=lambda: NO_PARTS)
    shared: Mapping[str, Merge] = field(default_factory=lambda: _NONE_SHARED)
    generation: bool = False
    first_generation: int = 1
    uncounted: frozenset[str] = _NOT_COUNTED
    counted_metadata: frozenset[str] = frozenset()
    reset_fields: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NONE_RESET)
    on_create: Callable[[Tree], None] = nothing
    on_update: Callable[[Tree, Tree, str], None] = _nothing_owed
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
        """Return whether objects are given time to end."""
        return self.grace_period is not _immediately

    def serves(self, subresource: str) -> bool:
        """Return whether a subresource is a part of the object itself, read and written as the object is."""
        return subresource in self.subresources or subresource in self.shared

    def prepare_create(self, new: Tree) -> None:
        """Take away what a client may not set on a new object and fill in what the kind owns; the caller has already
        set name, uid and creationTimestamp.
        """
        if "status" in self.subresources and not self.status_on_create:
            new["status"] = {}
        self.begin_metadata(new.setdefault("metadata", {}))
        if self.gated:
            drop_gated(self.gated, new)
        self.on_create(new)

    def begin_metadata(self, metadata: Tree) -> None:
        """Do so in the metadata."""
        self.forget(metadata)
        if self.generation and self.first_generation:
            metadata["generation"] = self.first_generation

    @staticmethod
    def forget(metadata: Tree) -> None:
        """Take away what only the server says of a new object."""
        if not metadata.keys().isdisjoint(_NOT_SENT):
            for name in _NOT_SENT:
                metadata.pop(name, None)

    def prepare_update(self, new: Tree, old: Tree) -> None:
        """Keep from `old` what belongs to subresources and to the server; count a change of the rest."""
        for paths in self.subresources.values():
            for path in paths:
                if new.get(path[0]) is not old.get(path[0]):
                    put_in(new, path, get_in(old, path))
        if self.gated:
            drop_gated(self.gated, new, old)
        self.on_update(new, old, "")
        self._own_metadata(new, old, counted=self.counted_metadata)

    def prepare_subresource(self, name: str, new: Tree, old: Tree) -> None:
        """Make `new` the old object but for what the subresource `name` may write, in place."""
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
        """Note that a deletion begins; the caller sets `deletionTimestamp` and its grace."""
        self.on_delete(tree)
        count = tree["metadata"].get("generation")
        if count and not self.deletion_finalizer:
            tree["metadata"]["generation"] = count + 1

    def still_held(self, tree: Tree) -> bool:
        """Return whether finalizers forbid the removal."""
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
