"""Transactions of etcd: each row is compared by its mod revision, and all rows are read if one does not match."""

from collections.abc import Mapping, Sequence

from apiserver_stub.storage.etcd.layout import Layout
from apiserver_stub.storage.interface import Compare, RevisionConflict, Write
from controller_manager.common.api.tree import Tree

_EQUAL, _LESS = 0, 2
_VERSION, _MOD = 0, 2
_NEVER = {"result": _LESS, "target": _VERSION, "version": 0}  # never true: a version is not negative


def transaction(
    layout: Layout,
    writes: Sequence[Write],
    compares: Sequence[Compare],
    leases: Mapping[float, int],
    *,
    final: bool = True,
) -> Tree:
    """Return the request that makes all writes or none. `leases` are by lifetime. Without `final`, the final states of
    deleted rows are not stored.
    """
    rows: list[Write | Compare] = [*writes, *compares]
    keys = [layout.key(row.resource, row.key) for row in rows]
    compared = [_compare(layout, row, key) for row, key in zip(rows, keys, strict=True)]
    done = [_operation(write, key, leases) for write, key in zip(writes, keys, strict=False)]
    if final and (states := layout.final(writes)):
        done.append({"request_put": {"key": layout.deleted, "value": states}})
    read = [{"request_range": {"key": key, "keys_only": True}} for key in keys]
    return {"compare": compared, "success": done, "failure": read}


def outcome(layout: Layout, answer: Tree, writes: Sequence[Write], compares: Sequence[Compare]) -> int:
    """Return the revision of an applied transaction. Raises `RevisionConflict`."""
    revision = layout.revision(answer["header"]["revision"])
    if answer.get("succeeded"):
        return revision
    rows: list[Write | Compare] = [*writes, *compares]
    for row, found in zip(rows, answer.get("responses", ()), strict=True):
        kvs = found["response_range"].get("kvs")
        current = layout.revision(kvs[0]["mod_revision"]) if kvs else 0
        if current != row.expected or (_deletes(row) and not current):
            raise RevisionConflict(row.resource, row.key, current, revision)
    raise AssertionError("etcd refused a transaction whose conditions hold")


def _compare(layout: Layout, row: Write | Compare, key: bytes) -> Tree:
    if not row.expected and not _deletes(row):
        return {"result": _EQUAL, "target": _MOD, "key": key, "mod_revision": 0}
    revision = layout.of_etcd(row.expected)
    if revision < 1:
        return {**_NEVER, "key": key}
    return {"result": _EQUAL, "target": _MOD, "key": key, "mod_revision": revision}


def _deletes(row: Write | Compare) -> bool:
    return isinstance(row, Write) and row.deleted


def _operation(write: Write, key: bytes, leases: Mapping[float, int]) -> Tree:
    if write.deleted:
        return {"request_delete_range": {"key": key}}
    put: Tree = {"key": key, "value": write.data}
    if write.ttl > 0:
        put["lease"] = leases[write.ttl]
    return {"request_put": put}
