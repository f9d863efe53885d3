"""The last step of a mutation: commit the result, or return it without writing (dry run)."""

from collections.abc import Awaitable, Sequence
from functools import partial

from msgspec.structs import replace

from apiserver_stub.common.spans import Span
from apiserver_stub.encode.json import in_order
from apiserver_stub.kinds.resource_info import Convert, Converter, ResourceInfo
from apiserver_stub.kinds.values.trees import deep_copy
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.request.audit import current_record, note_latency
from apiserver_stub.storage.interface import Write
from apiserver_stub.verbs.deletion import grace_of
from apiserver_stub.verbs.draft import WriteAttempt
from apiserver_stub.verbs.mutation import WriteResult
from apiserver_stub.verbs.preconditions import check_new
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.storage import answer, encoded, for_storage
from apiserver_stub.watch_cache.joint_commits import Also
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import monotonic


async def convert(kind: ResourceInfo, converter: Converter, draft: WriteAttempt) -> None:
    """Convert the new state to the storage version and to the version of the response. Both happen before the commit,
    so no conversion can fail after it.
    """
    group, version, _ = kind.storage_version
    (draft.stored,) = await converter((draft.new,), f"{group}/{version}")
    read = draft.stored
    if kind.from_storage is not None:
        read = await draft.run(partial(_read_back, kind.from_storage, read))
    (draft.answered,) = await converter((read,), kind.api_version)


def _read_back(from_storage: Convert, stored: Tree) -> Tree:
    return from_storage(deep_copy(stored))


async def rehearse(request: APIRequest, draft: WriteAttempt) -> WriteResult:
    """Return the response of a dry run; nothing is written."""
    data = await draft.run(partial(encoded, request.kind, in_order(draft.answered or draft.new)))
    return WriteResult(data, draft.warnings, draft.row is None, draft.removes)


async def commit(scope: RequestScope, request: APIRequest, draft: WriteAttempt, also: Sequence[Also]) -> WriteResult:
    """Write the object and the writes that admission adds, in one transaction. Raises `RevisionConflict` if a compared
    revision has changed.
    """
    kind, row, removes = request.kind, draft.row, draft.removes
    if row is None:
        check_new(draft.new["metadata"])
    data = for_storage(kind, draft.stored or draft.new)
    change = Write(*draft.rows[0], row.revision if row else 0, data, removes)
    is_audited = current_record() is not None
    began = monotonic() if is_audited else 0.0
    if removes and draft.old is not None and grace_of(draft.new) != grace_of(draft.old):
        # Watchers see the final grace period in a MODIFIED event before the DELETED event.
        marked = await _committed(scope, request, replace(change, deleted=False), ())
        change = replace(change, expected=marked.revision)
    written = draft.written = await _committed(scope, request, change, also)
    if is_audited:
        note_latency("etcd", monotonic() - began)
    if draft.whole and kind.converter is None:
        written.settled = kind.serial
    if not removes:
        scope.decoded.replace(row, kind, written, draft.new)
    elif row is not None:
        scope.decoded.forget(row)
    if draft.answered is draft.stored:
        return WriteResult(await answer(kind, written, scope.offload), draft.warnings, row is None, removes)
    assert draft.answered is not None
    draft.answered["metadata"]["resourceVersion"] = str(written.revision)
    return WriteResult(encoded(kind, in_order(draft.answered)), draft.warnings, row is None, removes)


def _committed(scope: RequestScope, request: APIRequest, change: Write, also: Sequence[Also]) -> Awaitable[Row]:
    if request.span is None:
        return scope.store.commit(change, *also)
    return _commit_traced(request.span, scope, request, change, also)


async def _commit_traced(
    span: Span, scope: RequestScope, request: APIRequest, change: Write, also: Sequence[Also]
) -> Row:
    """Commit inside a span with the name of the etcd3 storage's span."""
    done = "Delete" if change.deleted else "GuaranteedUpdate" if change.expected else "Create"
    kind = request.kind
    described = {"key": f"/{kind.plural}/{change.key}", "group": kind.group, "resource": kind.plural}
    with span.child(f"{done} etcd3", described) as storing:
        storing.event("Encode succeeded", {"len": len(change.data)})
        written = await scope.store.commit(change, *also)
        storing.event("Txn call succeeded" if done == "Create" else "Transaction committed")
    return written
