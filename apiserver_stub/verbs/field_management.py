"""Field management: who writes, and what that does to `metadata.managedFields` (KEP-555)."""

from datetime import UTC, datetime
from functools import lru_cache, partial

from apiserver_stub.kinds.rules.metadata import MANAGER_LIMIT
from apiserver_stub.kinds.values.trees import put_in
from apiserver_stub.patch.conformance import is_typed
from apiserver_stub.patch.field_set import Fields
from apiserver_stub.patch.managed_fields import (
    UPDATE,
    Comparison,
    Entries,
    FieldManager,
    Versions,
    accepted,
    owned_part,
    updated,
    writable,
)
from apiserver_stub.patch.typed import FieldChanges
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.verbs.scope import RequestScope
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import wall_seconds

_UNKNOWN = "unknown"
_RECORD = "managedFields"


def manage_new_fields(scope: RequestScope, request: APIRequest, tree: Tree, _old: Tree | None = None) -> None:
    """Record that the caller owns all it said, and what was filled in for it. Of the owners it names itself, each keeps
    what the object does not have yet. Nobody owns fields of a custom object that is not of the types of its schema.
    """
    if request.kind.custom and not is_typed(tree, request.kind.schema):
        put_managed_fields(tree, [])
        return
    author, versions, time = field_manager_of(request), Versions(scope.kinds, request.kind, request.conversions), now()
    said = writable(tree, request.kind.strategy, "")
    if (sent := managed_fields_of(tree)) and (named := accepted(sent, [])):
        put_managed_fields(tree, updated(named, author, partial(_initial_in, versions, said), time))
        return
    own_fields(request, tree, versions.own.typed.initial(owned_part(said)))


def own_fields(request: APIRequest, tree: Tree, fields: Fields) -> None:
    """Record that the caller owns these fields, in order, and nobody any others."""
    put_managed_fields(tree, [field_manager_of(request).entry_in_order(fields, now())] if fields else [])


def _initial_in(versions: Versions, tree: Tree, api_version: str) -> FieldChanges | None:
    """Return all fields of a new object, seen in a version; None when there is no such version."""
    version = versions.find(api_version)
    return (
        None if version is None else FieldChanges(version.typed.initial(owned_part(version.into(tree))) or None, None)
    )


def manage_changed_fields(scope: RequestScope, request: APIRequest, new: Tree, old: Tree | None) -> None:
    """Record that the caller owns what it changed. Objects that have no record get none by being changed."""
    assert old is not None
    if request.kind.custom and not (is_typed(new, request.kind.schema) and is_typed(old, request.kind.schema)):
        put_managed_fields(new, [])
        return
    author = field_manager_of(request)
    sent = new["metadata"].get(_RECORD) if request.subresource is None else None
    entries = accepted(sent, managed_fields_of(old))
    if entries:
        changes = Comparison(Versions(scope.kinds, request.kind, request.conversions), old, new)
        entries = updated(entries, author, changes.changes_in, now())
    put_managed_fields(new, entries)


def managed_fields_of(tree: Tree) -> Entries:
    """Return the record an object has."""
    found: Entries = tree["metadata"].get(_RECORD) or []
    return found


def put_managed_fields(tree: Tree, entries: Entries) -> None:
    """Give an object its record."""
    put_in(tree, ("metadata", _RECORD), entries or None)


def field_manager_of(request: APIRequest, operation: str = UPDATE) -> FieldManager:
    """Return the manager of a request: the one it names, or its program."""
    manager = request.query.get("fieldManager", "") or _program(request.http.headers.get("user-agent", ""))
    return FieldManager(manager or _UNKNOWN, operation, request.kind.api_version, request.subresource_name)


def now() -> str:
    """Return the time of a write, as records show it."""
    return _second(int(wall_seconds()))


@lru_cache(2)
def _second(moment: int) -> str:
    return format_time(datetime.fromtimestamp(moment, UTC))


@lru_cache(64)  # few programs make most requests
def _program(agent: str) -> str:
    """Return the name before the slash of a user agent, as much of it as a manager's may have."""
    name = "".join(filter(str.isprintable, agent.partition("/")[0]))
    return name.encode()[:MANAGER_LIMIT].decode(errors="ignore")
