"""Managed fields: who owns which fields, as `metadata.managedFields` records it (KEP-555), and how writes change that.

Entries are the plain objects the API shows. Those stored are as this module wrote them; what a client sends is read by
`accepted` first. An entry is never changed in place.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from apiserver_stub.kinds.rules.metadata import MANAGER_LIMIT, SUBRESOURCE_LIMIT
from apiserver_stub.patch.field_set import Fields, difference, ordered, parse, union
from apiserver_stub.patch.typed import FieldChanges

Entry = Mapping[str, Any]
Entries = list[Entry]
# Returns what a write changed in a version; None for an unknown version.
ChangesIn = Callable[[str], FieldChanges | None]
Identity = tuple[str, str, str, str]

APPLY, UPDATE = "Apply", "Update"
_MOST_UPDATES = 10  # entries of the operation Update that are kept apart; the oldest beyond are joined
_ANCIENT = "ancient-changes"
_FORMAT = "FieldsV1"


class FieldManager(NamedTuple):
    """The writer of fields: the name of a manager, by Apply or Update, in a version, through a subresource."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""

    def entry(self, fields: Fields, time: str) -> Entry:
        """Return the entry of this manager: the fields it owns, and when they or their values last changed."""
        return self.entry_in_order(ordered(fields), time)

    def entry_in_order(self, fields: Fields, time: str) -> Entry:
        """Return the same for a set whose steps are in order."""
        found = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": time,
            "fieldsType": _FORMAT,
            "fieldsV1": fields,
        }
        return {**found, "subresource": self.subresource} if self.subresource else found

    @property
    def identity(self) -> Identity:
        """See `identity_of`."""
        return identity_of({"manager": self.manager, "operation": self.operation, "apiVersion": self.api_version,
                            "subresource": self.subresource})  # fmt: skip


def identity_of(entry: Entry) -> Identity:
    """Return what tells entries apart; an applier is the same in every version."""
    version = "" if entry["operation"] == APPLY else entry["apiVersion"]
    return entry.get("manager", ""), entry["operation"], version, entry.get("subresource", "")


def fields_of(entry: Entry) -> Fields:
    """Return the fields that are owned by an entry."""
    found: Fields = entry.get("fieldsV1") or {}
    return found


def accepted(sent: Any, live: Entries) -> Entries:
    """Return the managed fields that an update begins with: those that the client sent; `live` if it sent none, or some
    that cannot be read; none if it sent one empty entry, which means to start over. An empty list never comes: it was
    left out when the object was fitted to its schema.
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
    """Return the managed fields after an update by `author`: all lose what it changed or removed, and it gains what it
    changed. It is the same list if nothing changed.
    """
    ours = changes_in(author.api_version) or FieldChanges(None, None)
    if ours == (None, None):
        return entries
    left = disowned(entries, changes_in)
    if ours.changed:
        before = next((entry for entry in left if identity_of(entry) == author.identity), None)
        gained = union(fields_of(before), ours.changed) if before else ours.changed
        left = [*(entry for entry in left if entry is not before), author.entry(gained, time)]
    return in_order(_capped(left))


def disowned(entries: Iterable[Entry], changes_in: ChangesIn) -> Entries:
    """Return the entries without the fields that a write changed or removed; without those left with none, and those of
    unknown versions.
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
    """Return the entries in order: appliers first, then by time and name."""
    return sorted(entries, key=lambda e: (e["operation"], e.get("time", ""), *identity_of(e)))


def is_expendable(entries: Entries) -> bool:
    """Tell whether an object may be stored without its managed fields: nobody has applied it."""
    return all(entry["operation"] == UPDATE for entry in entries)


def _capped(entries: Entries) -> Entries:
    """Join the oldest updates of each version under one name, if there are too many."""
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


def _age(entry: Entry) -> tuple[bool, str, Identity]:
    return entry.get("manager") != _ANCIENT, entry.get("time", ""), identity_of(entry)


def _joined(version: str, entries: Entries) -> Entry:
    fields: Fields = {}
    for entry in entries:
        fields = union(fields, fields_of(entry))
    return FieldManager(_ANCIENT, UPDATE, version).entry(fields, entries[-1].get("time", ""))


def _read(entry: Any) -> Entry:
    """Read an entry that a client sent. Raises `ValueError` or `KeyError`."""
    if entry["operation"] not in (APPLY, UPDATE) or not entry["apiVersion"] or entry["fieldsType"] != _FORMAT:
        raise ValueError("no entry of a known operation, version and format")
    if not _is_name(entry.get("manager", "")) or len(entry.get("subresource", "")) > SUBRESOURCE_LIMIT:
        raise ValueError("no name of a manager or of a subresource")
    return {**entry, "fieldsV1": ordered(parse(entry.get("fieldsV1") or {}))}


def _is_name(text: str) -> bool:
    return len(text.encode()) <= MANAGER_LIMIT and text.isprintable()
