"""Deletion of a CustomResourceDefinition: all its objects are deleted, then its finalizer is removed."""

from collections.abc import Callable
from typing import Any

from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema.schema import ANYTHING
from apiserver_stub.kinds.strategies.definitions import (
    BUILT_IN,
    CLEANUP_FINALIZER,
    DELETION_DONE,
    DELETION_RUNNING,
    ESTABLISHED,
    NEVER_ESTABLISHED,
    TERMINATING,
    DefinitionCondition,
    condition,
    is_true,
    with_condition,
)
from apiserver_stub.kinds.values.trees import get_in
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.verbs import RequestScope
from apiserver_stub.verbs.delete import delete_rows
from apiserver_stub.verbs.deletion import DeleteOptions
from apiserver_stub.verbs.storage import batches
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.timestamps import parse_time
from controller_manager.common.api.tree import Tree
from controller_manager.common.api.wire import Request
from controller_manager.common.base.clock import utc_now
from controller_manager.common.serving.authentication import User

PATIENCE = 60.0
"""Seconds after the start of a deletion until its condition reports that objects remain."""
_WHEN = "metadata.deletionTimestamp"
_STILL_THERE = condition(
    TERMINATING,
    "True",
    "InstanceDeletionCheck",
    "could not confirm zero CustomResources remaining: context deadline exceeded",
)


def storage_of(definition: Tree) -> str:
    """Return the storage name of a definition's objects."""
    return f"{definition['spec']['names']['plural']}.{definition['spec']['group']}"


def is_ending(definition: Tree) -> bool:
    """Return whether a definition is being deleted and has the cleanup finalizer."""
    metadata = definition["metadata"]
    return "deletionTimestamp" in metadata and CLEANUP_FINALIZER in metadata.get("finalizers", ())


async def delete_objects(scope: RequestScope, definition: Tree) -> list[ApiError]:
    """Delete all objects of a definition that are not terminating yet; return the errors."""
    storage = storage_of(definition)
    request = APIRequest(Request("DELETE", "/"), User(""), "deletecollection", _kind_of(definition), "", "", None, {})
    rows = (row for row in scope.store.snapshot(storage).items() if not row.field(_WHEN))
    refusals: list[ApiError] = []
    for batch in batches(rows, scope.limits.deletes):
        refusals += await delete_rows(scope, request, batch, DeleteOptions())
    return refusals


def verdict(store: WatchCache, definition: Tree, *, overlaps: bool) -> DefinitionCondition:
    """Return the current condition of a deletion; it is finished if the status is False."""
    if overlaps:
        return BUILT_IN
    if not is_true(definition, ESTABLISHED):
        return NEVER_ESTABLISHED
    if not store.count(storage_of(definition)):
        return DELETION_DONE
    begun = parse_time(definition["metadata"]["deletionTimestamp"])
    return _STILL_THERE if (utc_now() - begun).total_seconds() >= PATIENCE else DELETION_RUNNING


def refused(refusals: list[ApiError]) -> DefinitionCondition:
    """Return the condition for objects that could not be deleted."""
    messages = list(dict.fromkeys(refusal.message for refusal in refusals))[:3]
    why = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    return condition(TERMINATING, "True", "InstanceDeletionFailed", f"could not issue all deletes: {why}")


def with_verdict(terminating: DefinitionCondition) -> Callable[[Tree], Tree]:
    """Return the change that sets the condition and, if the cleanup is finished, removes the finalizer."""

    def change(definition: Tree) -> Tree:
        conditions: Any = get_in(definition, ("status", "conditions")) or ()
        status = {**definition.get("status", {}), "conditions": with_condition(conditions, terminating)}
        if terminating["status"] == "True":
            return {**definition, "status": status}
        held = [name for name in definition["metadata"].get("finalizers", ()) if name != CLEANUP_FINALIZER]
        metadata = {name: value for name, value in definition["metadata"].items() if name != "finalizers"}
        return {**definition, "metadata": metadata | ({"finalizers": held} if held else {}), "status": status}

    return change


def _kind_of(definition: Tree) -> ResourceInfo:
    """Return a minimal kind for the deletion: objects need no conversion."""
    spec = definition["spec"]
    names = spec["names"]
    return ResourceInfo(
        group=spec["group"],
        version=next(version["name"] for version in spec["versions"] if version["storage"]),
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular", ""),
        namespaced=spec["scope"] == "Namespaced",
        verbs=frozenset(),
        storage=storage_of(definition),
        schema=ANYTHING,
    )
