"""Carry out a `Mutation`: the single path of every API write.

load → edit → default → mutating admission → identify (new objects) → prepare → manage fields → validate → authorize (an
update or apply that creates) → validating admission → allocate → commit; a conflict starts again at *load*. Only states
sent by a caller are defaulted and validated. Evictions and bindings pass admission before they become mutations of
their object.

The fields of a new object are recorded before admission, so fields that admission adds have no owner. Waiting for a
turn (`WatchCache.turn`) avoids attempts that would fail; the compare in the commit prevents lost updates.
"""

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from apiserver_stub.admission import Admission, Attributes, Notes
from apiserver_stub.admission.plugins.namespaces import namespace_row
from apiserver_stub.common.offload import StepRunner, at_once
from apiserver_stub.kinds.at_rest import read
from apiserver_stub.kinds.defaults.kinds import apply_defaults
from apiserver_stub.kinds.validate import judge
from apiserver_stub.kinds.values.trees import identical, put_in
from apiserver_stub.kinds.warnings import warnings_of
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.storage.interface import RevisionConflict
from apiserver_stub.verbs.commit import commit, convert, rehearse
from apiserver_stub.verbs.decode import Warnings
from apiserver_stub.verbs.draft import Lost, WriteAttempt, name_of, row_of
from apiserver_stub.verbs.mutation import Load, Mutation, WriteResult
from apiserver_stub.verbs.preconditions import (
    already_exists,
    check_create_authorized,
    check_may_create,
    check_namespace,
    check_new,
    check_version,
    object_not_found,
    stale,
)
from apiserver_stub.verbs.query import is_dry_run
from apiserver_stub.verbs.scope import RequestScope, attributes_of, audit_notes
from apiserver_stub.verbs.storage import answer, key_of
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.errors import (
    AlreadyExists,
    ApiError,
    Cause,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    invalid,
)
from controller_manager.common.api.tree import Tree

_NOT_ASKED = Admission()
_JUDGED = ("create", "update")  # operations with a state sent by the caller
_OF_STATE = (NotFound, Conflict, AlreadyExists, Forbidden, Invalid)  # errors that may be caused by a stale state


async def write(scope: RequestScope, request: APIRequest, mutation: Mutation) -> WriteResult:
    """Carry out a mutation. Raises `Conflict` after too many lost races, and the errors of the steps; nothing is
    written then. If a step failed on a stale state, the write is retried once with the current state.
    """
    notes = Notes()
    try:
        outcome = await _written(scope, request, mutation, notes)
    except ApiError as error:
        error.warnings = (*error.warnings, *notes.warnings)
        raise
    finally:
        audit_notes(notes)
    return replace(outcome, warnings=(*outcome.warnings, *notes.warnings)) if notes.warnings else outcome


async def _written(scope: RequestScope, request: APIRequest, mutation: Mutation, notes: Notes) -> WriteResult:
    refusal: ApiError | None = None
    fresh = False
    for _ in range(scope.limits.attempts):
        try:
            return await _attempt(scope, request, mutation, notes)
        except RevisionConflict:
            pass  # the conflicting write is visible by now
        except Lost as lost:
            refusal = lost.refusal
        except _OF_STATE:
            if fresh or not await _was_behind(scope):
                raise
            fresh = True
    raise refusal or stale(request)


async def _attempt(scope: RequestScope, request: APIRequest, mutation: Mutation, notes: Notes) -> WriteResult:
    """Run all steps once on the visible state. Raises `Lost` or `RevisionConflict` if the state changes meanwhile."""
    admission = scope.admission if mutation.operation else _NOT_ASKED
    draft = await _load(scope, request, mutation, notes)
    await draft.run(partial(_edit, scope, request, draft))
    if draft.row is None:
        check_may_create(request.kind, name_of(request, draft))
    attributes = _shown(request, draft)
    try:
        await admission.mutate(attributes)
    except ApiError as refusal:
        _warn_too(draft, refusal)
        raise
    _take(draft, attributes)
    if attributes.reinvocation.asked:  # webhooks may have changed read-only fields
        draft.sent = attributes.reinvocation.sent
        _check_again(request, draft)
    await draft.run(partial(_complete, request, draft))
    if draft.row is not None:
        await _check_current(scope, request, draft)
    attributes = _renewed(request, draft, attributes)
    if draft.row is None and request.verb != "create":
        await check_create_authorized(scope.authorizer, request)
    try:
        await admission.validate(attributes)
    except ApiError as refusal:
        _warn_too(draft, refusal)
        raise
    if not draft.changes and not await _is_stale(scope, request, draft.row):
        return await _unchanged(scope, request, draft)
    if request.kind.converter is not None:
        await convert(request.kind, request.kind.converter, draft)
    await _check_current(scope, request, draft)
    also = await admission.allocate(_effect(draft, attributes))
    if is_dry_run(request.query):
        return await rehearse(request, draft)
    return await commit(scope, request, draft, also)


def _warn_too(draft: WriteAttempt, refusal: ApiError) -> None:
    """Add the warnings of earlier steps to an error of admission."""
    refusal.warnings = (*draft.warnings, *refusal.warnings)


async def _load(scope: RequestScope, request: APIRequest, mutation: Mutation, notes: Notes) -> WriteAttempt:
    """Return an attempt with the current state, after pending writes of it have finished. Raises `NotFound`."""
    if mutation.operation == "create":
        if (turn := scope.store.turn(*namespace_row(request.namespace))) is not None:
            await turn
        return WriteAttempt(mutation, None, _run_of(scope, request), notes, again=False)
    key = key_of(request.kind, request.namespace, request.name)
    if (turn := scope.store.turn((request.kind.storage, key))) is not None:
        await turn
    row = scope.store.get(request.kind.storage, key)
    if row is None:
        if mutation.otherwise is None:
            raise object_not_found(request)
        return WriteAttempt(mutation.otherwise, None, _run_of(scope, request), notes, again=True)
    seen = scope.store.revision
    if mutation.read:
        return WriteAttempt(mutation, row, _run_of(scope, request), notes, again=True, seen=seen)
    served = row
    if request.kind.converter is not None:
        (served,) = await scope.conversions.of(request.kind).convert_uncached((row,))
    return WriteAttempt(
        mutation, row, _run_of(scope, request, served.data), notes, again=True, seen=seen, served=served
    )


def _run_of(scope: RequestScope, request: APIRequest, data: bytes = b"") -> StepRunner:
    """Return the runner for the steps of an attempt. `_edit` and `_complete` are repeated if they need a conversion, so
    they must be safe to run again.
    """
    run = scope.run_of(request, data)
    return run if request.conversions is None else request.conversions.interrupting(run)


def _edit(scope: RequestScope, request: APIRequest, draft: WriteAttempt) -> None:
    """Make the wanted state as admission sees it: preconditions checked and defaults set."""
    mutation, row = draft.mutation, draft.row
    if row is None:
        load = Load(dict)
    else:
        kind, served = request.kind, draft.served or row
        if mutation.read:
            load = Load(partial(mutation.read, row))
        else:
            load = Load(lambda: read(kind, served.data), scope.decoded.read(kind, served))
        draft.old = load.state
    if not draft.new:  # a repeated run keeps the edited state
        edited = mutation.edit(load)
        draft.new, draft.warnings, draft.again = edited.tree, edited.warnings, draft.again or edited.drawn
        draft.completed = edited.completed
    if mutation.operation not in _JUDGED:
        return
    check_namespace(request, draft.new["metadata"])
    if draft.old is not None:
        check_version(request, draft.new["metadata"], draft.old["metadata"])
    if not draft.completed:
        apply_defaults(draft.new, request.kind)
    if draft.old is None:
        mutation.manage_fields(draft.new, None)


def _shown(request: APIRequest, draft: WriteAttempt) -> Attributes:
    """Return the mutation as admission sees it."""
    operation, new, old, view = draft.mutation.operation or "update", draft.new, draft.old, draft.mutation.view
    if view is not None and old is not None:
        new, old = view.show(new), view.show(old)
    tree = None if operation == "delete" else new
    run = draft.run if request.conversions is None else at_once  # a conversion must not repeat a plugin
    name, options = name_of(request, draft), draft.mutation.options
    return attributes_of(request, operation, tree, old, name, options, draft.notes, run)


def _take(draft: WriteAttempt, attributes: Attributes) -> None:
    """Apply the view that admission may have changed to the object."""
    if draft.mutation.view is not None:
        draft.new = draft.mutation.view.take(draft.new, attributes.tree)


def _complete(request: APIRequest, draft: WriteAttempt) -> None:
    """Turn an admitted state into one that can be stored. Raises `Invalid`."""
    mutation, kind, new, old = draft.mutation, request.kind, draft.new, draft.old
    judged, sent = mutation.operation in _JUDGED, draft.warnings
    if judged and old is None:  # before prepare, which removes fields that only the server sets
        draft.warnings = (*sent, *warnings_of(kind, new, None))
    if old is None:
        mutation.identify(new)
    draft.removes = mutation.prepare(new, old)
    if old is not None:
        _manage_fields(draft, new, old)
        draft.changes = draft.removes or new != old or (kind.custom and not identical(new, old))
    if judged:
        _judge(request, draft, sent)


def _judge(request: APIRequest, draft: WriteAttempt, sent: Warnings) -> None:
    """Validate a state and add the warnings. Raises `Invalid`, with the warnings `sent` before."""
    kind, new, old = request.kind, draft.new, draft.old
    problems, warnings, draft.whole = judge(kind, new, old, request.subresource_name)
    _refuse(request, draft, problems, (*sent, *warnings))
    draft.warnings = (*draft.warnings, *warnings)
    if old is not None:
        draft.warnings = (*draft.warnings, *warnings_of(kind, new, old, request.subresource_name))


def _refuse(request: APIRequest, draft: WriteAttempt, problems: Sequence[Cause], warnings: Warnings) -> None:
    """Raises `Invalid` if there are problems."""
    if not problems:
        return
    group = str(draft.new["apiVersion"]).rpartition("/")[0]
    refusal = invalid(group, draft.new["kind"], name_of(request, draft), problems)
    refusal.warnings = warnings
    raise refusal


def _check_again(request: APIRequest, draft: WriteAttempt) -> None:
    """Check an object again that webhooks may have changed. Raises `BadRequest`, `Conflict` and `UnknownError`."""
    metadata, old = draft.new["metadata"], draft.old
    check_namespace(request, metadata)
    version = metadata.get("resourceVersion")
    if old is None:
        check_new(metadata)
    if old is not None and version and version != old["metadata"]["resourceVersion"]:
        raise stale(request)


def _manage_fields(draft: WriteAttempt, new: Tree, old: Tree) -> None:
    """Record the caller as owner of the fields it sent. Changes by webhooks have no owner."""
    mutation, sent = draft.mutation, draft.sent
    if sent is None or mutation.view is not None:
        mutation.manage_fields(new, old)
        return
    mutation.prepare(sent, old)
    mutation.manage_fields(sent, old)
    put_in(new, ("metadata", "managedFields"), sent["metadata"].get("managedFields"))


async def _is_stale(scope: RequestScope, request: APIRequest, row: Row | None) -> bool:
    """Return whether an unchanged object must be rewritten because it is stored in an old version or encrypted with an
    old key.
    """
    kind = request.kind
    if kind.converter is not None and row is not None:
        group, version, _ = kind.storage_version
        if row.field("apiVersion") != f"{group}/{version}":
            return True
    return await scope.store.storage.is_stale(kind.storage, key_of(kind, request.namespace, request.name))


async def _check_current(scope: RequestScope, request: APIRequest, draft: WriteAttempt) -> None:
    """Wait until no other write of the object, nor of the namespace of a new one, is pending. Raises `Lost` if the
    object has changed since it was loaded, and `AlreadyExists` if a new one exists.
    """
    store = scope.store
    if not draft.rows:
        row = row_of(request, draft)
        draft.rows = (row, *namespace_row(request.namespace)) if draft.row is None else (row,)
    if (turn := store.turn(*draft.rows)) is not None:
        await turn
    if store.revision == draft.seen:
        return
    found = store.get(*draft.rows[0])
    if found is draft.row:
        draft.seen = store.revision
        return
    if draft.row is not None or found is None:
        raise Lost(stale(request))
    taken = already_exists(request, name_of(request, draft), found)
    raise Lost(taken) if draft.again else taken


async def _was_behind(scope: RequestScope) -> bool:
    """Wait until all acknowledged revisions are visible here. Return whether any were missing."""
    seen = scope.store.revision
    await scope.wait_until_fresh(None)
    return scope.store.revision > seen


def _renewed(request: APIRequest, draft: WriteAttempt, attributes: Attributes) -> Attributes:
    """Return the mutation as admission sees it after the object is complete."""
    if draft.mutation.view is not None:
        return _shown(request, draft)
    return attributes if attributes.name else replace(attributes, name=name_of(request, draft))


def _effect(draft: WriteAttempt, attributes: Attributes) -> Attributes:
    """Return the mutation by its effect: removing the last finalizer is a delete, and starting a deletion is an
    update.
    """
    if draft.removes:
        return replace(attributes, operation="delete", object=None, old_object=draft.old)
    return replace(attributes, operation="update", object=draft.new) if attributes.object is None else attributes


async def _unchanged(scope: RequestScope, request: APIRequest, draft: WriteAttempt) -> WriteResult:
    assert draft.row is not None
    if await _was_behind(scope):
        await _check_current(scope, request, draft)
    row = draft.served or draft.row
    return WriteResult(await answer(request.kind, row, scope.offload), draft.warnings)
