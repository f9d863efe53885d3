"""`metadata.managedFields`: the owners of fields, and how writes change them (KEP-555).

Entries are the plain objects of the API. Stored entries were written by this module; entries from a client must go
through `accepted` first. An entry is never changed in place.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.kinds.resource_info import Convert, ResourceInfo
from apiserver_stub.kinds.rules.metadata import MANAGER_LIMIT, SUBRESOURCE_LIMIT
from apiserver_stub.kinds.strategies.strategy import Strategy
from apiserver_stub.kinds.values.trees import get_in, put_in
from apiserver_stub.patch.conversions import Conversions
from apiserver_stub.patch.field_set import Fields, difference, gained, ordered, parse, union
from apiserver_stub.patch.typed import FieldChanges, Typed
from apiserver_stub.patch.typed_objects import type_of
from controller_manager.common.api.tree import Tree

ManagedFieldsEntry = Mapping[str, Any]
Entries = list[ManagedFieldsEntry]
# Returns the changes of a write in a version, or None if the version is unknown.
ChangesIn = Callable[[str], FieldChanges | None]
Identity = tuple[str, str, str, str]

APPLY, UPDATE = "Apply", "Update"
_MOST_UPDATES = 10  # entries of the operation Update; beyond this the oldest are merged
_ANCIENT = "ancient-changes"
_FORMAT = "FieldsV1"


class FieldManager(NamedTuple):
    """A field manager: name, operation (Apply or Update), version and subresource."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""

    def entry(self, fields: Fields, time: str) -> ManagedFieldsEntry:
        """Return the entry of this manager: its fields, and when they or their values last changed."""
        return self.entry_in_order(ordered(fields), time)

    def entry_in_order(self, fields: Fields, time: str) -> ManagedFieldsEntry:
        """Return the entry for a set whose steps are in order. An empty set has no time."""
        found = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": time,
            "fieldsType": _FORMAT,
            "fieldsV1": fields,
        }
        if not time:
            del found["time"]
        return {**found, "subresource": self.subresource} if self.subresource else found

    def entry_in(self, entries: Entries) -> ManagedFieldsEntry | None:
        """Return the entry of this manager, or None."""
        identity = self.identity
        for entry in entries:
            if identity_of(entry) == identity:
                return entry
        return None

    @property
    def identity(self) -> Identity:
        """See `identity_of`."""
        return self.manager, self.operation, "" if self.operation == APPLY else self.api_version, self.subresource


def identity_of(entry: ManagedFieldsEntry) -> Identity:
    """Return the key of an entry's manager. The version is not part of it for Apply."""
    version = "" if entry["operation"] == APPLY else entry["apiVersion"]
    return entry.get("manager", ""), entry["operation"], version, entry.get("subresource", "")


def fields_of(entry: ManagedFieldsEntry) -> Fields:
    """Return the fields that an entry owns."""
    found: Fields = entry.get("fieldsV1") or {}
    return found


def accepted(sent: Any, live: Entries) -> Entries:
    """Return the managed fields that an update starts from: those that the client sent, or `live` if it sent none or
    unreadable ones. One empty entry resets them. (An empty list cannot occur: it was dropped when the object was fitted
    to its schema.)
    """
    if sent is None or sent == live:
        return live
    if sent == [{}]:
        return []
    try:
        entries = [entry if entry in live else _read(entry) for entry in sent]
        found = {identity_of(entry): entry for entry in entries}
    except (ValueError, KeyError):
        return live
    return list(found.values())


def updated(entries: Entries, author: FieldManager, changes_in: ChangesIn, time: str) -> Entries:
    """Return the managed fields after an update by `author`. All managers lose the fields that were removed, all others
    lose those that were changed, and the author gains them. If nothing changed, the same list is returned.
    """
    ours = changes_in(author.api_version) or FieldChanges(None, None)
    if ours == (None, None):
        return entries
    if not ours.changed:
        return in_order(_capped(disowned(entries, changes_in)))
    mine = author.entry_in(entries)
    left = disowned((entry for entry in entries if entry is not mine), changes_in)
    before = difference(fields_of(mine), ours.removed or {}) if mine else {}
    left.append(author.entry_in_order(gained(before, ours.changed), time))
    return in_order(_capped(left))


def disowned(entries: Iterable[ManagedFieldsEntry], changes_in: ChangesIn) -> Entries:
    """Return the entries without the fields that a write changed or removed. Empty entries and those of unknown
    versions are dropped.
    """
    left: Entries = []
    for entry in entries:
        changes = changes_in(entry["apiVersion"])
        if changes is None:
            continue
        before = fields_of(entry)
        fields = difference(difference(before, changes.changed or {}), changes.removed or {})
        if fields:
            left.append(entry if fields == before else {**entry, "fieldsV1": fields})
    return left


def in_order(entries: Entries) -> Entries:
    """Return the entries in order: Apply first, then by time and name."""
    return sorted(entries, key=lambda e: (e["operation"], e.get("time", ""), *identity_of(e)))


def is_expendable(entries: Entries) -> bool:
    """Return whether an object may be stored without its managed fields: no manager has applied it."""
    return all(entry["operation"] == UPDATE for entry in entries)


def _capped(entries: Entries) -> Entries:
    """Merge the oldest Update entries of each version if there are too many."""
    updates = [entry for entry in entries if entry["operation"] == UPDATE]
    excess = len(updates) - _MOST_UPDATES
    if excess <= 0:
        return entries
    joined: dict[str, Entries] = {}
    for entry in sorted(updates, key=_age):
        bucket = joined.setdefault(entry["apiVersion"], [])
        if excess > 0:
            excess -= 1 if bucket else 0
            bucket.append(entry)
    gone = {id(entry) for bucket in joined.values() if len(bucket) > 1 for entry in bucket}
    ancient = [_joined(version, bucket) for version, bucket in joined.items() if len(bucket) > 1]
    return [*(entry for entry in entries if id(entry) not in gone), *ancient]


def _age(entry: ManagedFieldsEntry) -> tuple[bool, str, Identity]:
    return entry.get("manager") != _ANCIENT, entry.get("time", ""), identity_of(entry)


def _joined(version: str, entries: Entries) -> ManagedFieldsEntry:
    fields: Fields = {}
    for entry in entries:
        fields = union(fields, fields_of(entry))
    return FieldManager(_ANCIENT, UPDATE, version).entry(fields, entries[-1].get("time", ""))


def _read(entry: Any) -> ManagedFieldsEntry:
    """Read an entry sent by a client. Raises `ValueError` or `KeyError`."""
    if entry["operation"] not in (APPLY, UPDATE) or not entry["apiVersion"] or entry["fieldsType"] != _FORMAT:
        raise ValueError("no entry of a known operation, version and format")
    if not _is_name(entry.get("manager", "")) or len(entry.get("subresource", "")) > SUBRESOURCE_LIMIT:
        raise ValueError("no name of a manager or of a subresource")
    return {**entry, "fieldsV1": ordered(parse(entry.get("fieldsV1") or {}))}


def _is_name(text: str) -> bool:
    return len(text.encode()) <= MANAGER_LIMIT and text.isprintable()


# The versions in which an object's managed fields are recorded, and the changes of a write in each.


# Fields of metadata that have no owner (KEP-555).
UNOWNED = frozenset({
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
    "resourceVersion",
})  # fmt: skip
_TYPE = frozenset({"apiVersion", "kind"})
_MISSING: Any = object()


class Version(NamedTuple):
    """The type of objects in a version, with the conversions from and to the version of a request."""

    typed: Typed
    into: Convert
    back: Convert


class Versions:
    """The versions of a kind, relative to the version of a request. `conversions` are needed if the kind has a
    converter.
    """

    def __init__(self, kinds: ResourceRegistry, kind: ResourceInfo, conversions: Conversions | None = None) -> None:
        self._kinds = kinds
        self._kind = kind
        self._conversions = conversions
        self.own = Version(type_of(kind.schema), _same, _same)

    def find(self, api_version: str) -> Version | None:
        """Return a version by name, or None if it is not served."""
        if api_version == self._kind.api_version:
            return self.own
        group, _, version = api_version.rpartition("/")
        other = self._kinds.find(group, version, self._kind.plural)
        if other is None or other.storage != self._kind.storage:
            return None
        return Version(type_of(other.schema), self._conversion(self._kind, other), self._conversion(other, self._kind))

    def check(self, tree: Tree, entries: Entries) -> None:
        """Convert an object to all versions in its managed fields before they are used. Raises the errors of the
        conversions.
        """
        if self._conversions is not None:
            for entry in entries:
                if version := self.find(entry["apiVersion"]):
                    version.into(tree)

    def _conversion(self, one: ResourceInfo, other: ResourceInfo) -> Convert:
        conversions = self._conversions
        if conversions is not None:
            return lambda tree: conversions.convert(tree, other.api_version)
        return _conversion(one, other)


class Comparison:
    """The differences between two states of an object in the version of a request."""

    def __init__(self, versions: Versions, old: Tree, new: Tree) -> None:
        self._versions = versions
        self._states = old, new
        self._found: dict[str, FieldChanges | None] = {}

    def changes_in(self, api_version: str) -> FieldChanges | None:
        """Return the differences in a version, or None if the version does not exist."""
        if api_version not in self._found:
            self._found[api_version] = self._compared(self._versions.find(api_version))
        return self._found[api_version]

    def _compared(self, version: Version | None) -> FieldChanges | None:
        if version is None:
            return None
        old, new = map(version.into, self._states)
        return version.typed.compare(_differing(old, new), _differing(new, old))


def owned_part(tree: Tree) -> Tree:
    """Return the object without the fields that have no owner."""
    metadata = {name: value for name, value in tree["metadata"].items() if name not in UNOWNED}
    rest = {name: value for name, value in tree.items() if name not in _TYPE}
    rest["metadata"] = metadata
    return rest


def writable(tree: Tree, strategy: Strategy, subresource: str) -> Tree:
    """Return the part of an object that a subresource can write; an empty name stands for the main resource."""
    paths = strategy.subresources.get(subresource)
    if paths is None:
        found = dict(tree)
        for paths in strategy.subresources.values():
            for path in paths:
                if (
                    path[0] in found and path != strategy.finalizers
                ):  # a manager that sends them owns them, although they are ignored
                    put_in(found, path, None)
        return found
    metadata = {
        name: value
        for name, value in tree["metadata"].items()
        if name not in strategy.reset_fields.get(subresource, ())
    }
    found = {"apiVersion": tree["apiVersion"], "kind": tree["kind"], "metadata": metadata}
    for path in paths:
        put_in(found, path, get_in(tree, path))
    return found


def _differing(tree: Tree, other: Tree) -> Tree:
    """Return the owned part without values that are identical objects in both states; they cannot differ."""
    found = {
        name: value for name, value in tree.items() if value is not other.get(name, _MISSING) and name not in _TYPE
    }
    metadata, known = tree["metadata"], other["metadata"]
    found["metadata"] = {
        name: value
        for name, value in metadata.items()
        if name not in UNOWNED and value is not known.get(name, _MISSING)
    }
    return found


def _same(tree: Tree) -> Tree:
    return tree


def _conversion(one: ResourceInfo, other: ResourceInfo) -> Convert:
    def convert(tree: Tree) -> Tree:
        stored = one.to_storage(tree) if one.to_storage else tree
        return other.from_storage(stored) if other.from_storage else stored

    return convert
