"""Removes unreadable default objects from the store, so that they are created again.

Encrypted objects are kept: they are readable once the server has their key.
"""

from contextlib import suppress

from apiserver_stub.kinds.at_rest import read
from apiserver_stub.kinds.fit import fit_tree
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.request.request_info import RequestInfo
from apiserver_stub.storage.interface import RevisionConflict, Write
from apiserver_stub.verbs import RequestScope
from apiserver_stub.verbs.storage import for_storage, key_of
from apiserver_stub.watch_cache.row import CorruptRow, Row
from controller_manager.common.base.log import get_logger


async def remove_unreadable_at(scope: RequestScope, path: str) -> None:
    """Remove the object of a path if it is unreadable."""
    info = RequestInfo.of("GET", path, {})
    kind = scope.kinds.find(info.group, info.version, info.resource)
    if kind is not None:
        await remove_unreadable(scope, kind, info.namespace if kind.namespaced else "", info.name)


async def remove_unreadable(scope: RequestScope, kind: ResourceInfo, namespace: str, name: str) -> None:
    """Remove an unreadable object, unless another server has just changed it."""
    row = scope.store.get(kind.storage, key_of(kind, namespace, name))
    problem = "" if row is None else _problem(kind, row)
    if row is None or not problem:
        return
    log = get_logger("bootstrap").bind(resource=row.resource, key=row.key, problem=problem)
    if isinstance(row, CorruptRow) and row.is_encrypted:
        log.error("failed to decrypt stored object; skipping it")
        return
    log.error("failed to decode stored object; creating it again")
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    last = for_storage(kind, {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})
    with suppress(RevisionConflict):
        await scope.store.commit(Write(row.resource, row.key, row.revision, last, deleted=True))


def _problem(kind: ResourceInfo, row: Row) -> str:
    """Return why a row is not a readable object of its kind; empty if it is."""
    if isinstance(row, CorruptRow):
        return row.decode_error
    wrong = fit_tree(read(kind, row.data), kind.schema).wrong
    return wrong[0] if wrong else ""
