"""Field management: the manager of a request and its effect on `metadata.managedFields` (KEP-555)."""

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
    """Record the caller as owner of all fields of a new object, defaults included. If the caller sent managedFields,
    those managers keep their fields and the caller owns the rest. A custom object that does not match its schema gets
    no managedFields.
    """
    if request.kind.custom and not is_typed(tree, request.kind.schema):
        put_managed_fields(tree, [])
        return
    author, versions, time = field_manager_of(request), Versions(scope.kinds, request.kind, request.conversions), now()
    writable_part = writable(tree, request.kind.strategy, "")
    if (sent := managed_fields_of(tree)) and (named := accepted(sent, [])):
        put_managed_fields(tree, updated(named, author, partial(_initial_in, versions, writable_part), time))
        return
    own_fields(request, tree, versions.own.typed.initial(owned_part(writable_part)))


def own_fields(request: APIRequest, tree: Tree, fields: Fields) -> None:
    """Record the caller as the only manager, with these fields, in order."""
    put_managed_fields(tree, [field_manager_of(request).entry_in_order(fields, now())] if fields else [])


def _initial_in(versions: Versions, tree: Tree, api_version: str) -> FieldChanges | None:
    """Return all fields of a new object in a version, or None if the version does not exist."""
    version = versions.find(api_version)
    return (
        None if version is None else FieldChanges(version.typed.initial(owned_part(version.into(tree))) or None, None)
    )


def manage_changed_fields(scope: RequestScope, request: APIRequest, new: Tree, old: Tree | None) -> None:
    """Record the caller as owner of the fields it changed. Objects without managedFields stay without."""
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
    """Return the managedFields of an object."""
    found: Entries = tree["metadata"].get(_RECORD) or []
    return found


def put_managed_fields(tree: Tree, entries: Entries) -> None:
    """Set the managedFields of an object, or remove them if there are no entries."""
    put_in(tree, ("metadata", _RECORD), entries or None)


def field_manager_of(request: APIRequest, operation: str = UPDATE) -> FieldManager:
    """Return the field manager of a request: the `fieldManager` parameter, or the program in the user agent."""
    manager = request.query.get("fieldManager", "") or _program(request.http.headers.get("user-agent", ""))
    return FieldManager(manager or _UNKNOWN, operation, request.kind.api_version, request.subresource_name)


def now() -> str:
    """Return the current time in the format of managedFields."""
    return _second(int(wall_seconds()))


@lru_cache(2)
def _second(moment: int) -> str:
    return format_time(datetime.fromtimestamp(moment, UTC))


@lru_cache(64)  # a few programs send most requests
def _program(agent: str) -> str:
    """Return the user agent up to the slash, cut to the length limit of a manager."""
    name = "".join(filter(str.isprintable, agent.partition("/")[0]))
    return name.encode()[:MANAGER_LIMIT].decode(errors="ignore")
