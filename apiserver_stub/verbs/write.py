"""The one way of every change of the API, from the state of an object to its next one; what each step is, a `Mutation`
says.

load → edit → default → mutating admission → identify (what is new) → prepare → manage fields → validate → validating
admission → allocate → commit, and again from *load* when somebody else was faster. What is judged is given its defaults
and held to the rules of its kind. Evictions and bindings are shown to admission before they become mutations of their
object.

The fields of a new object are recorded before admission: what that adds is nobody's. Waiting for a turn
(`WatchCache.turn`) only saves a mutation from deciding in vain; that nothing is lost follows from the compare of the
commit.
"""

from collections.abc import Awaitable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from apiserver_stub.admission import Admission, Attributes, Notes
from apiserver_stub.admission.namespaces import namespace_row
from apiserver_stub.api_request import APIRequest, Tree
from apiserver_stub.audit import current_record, note_latency
from apiserver_stub.encode.body import run_of
from apiserver_stub.encode.json import encode, in_order
from apiserver_stub.kinds.at_rest import read
from apiserver_stub.kinds.defaults import apply_defaults
from apiserver_stub.kinds.resource_info import Converter, ResourceInfo
from apiserver_stub.kinds.templates import template_of
from apiserver_stub.kinds.trees import deep_copy, put_in
from apiserver_stub.kinds.validate import judge
from apiserver_stub.kinds.warnings import warnings_of
from apiserver_stub.offload import Run
from apiserver_stub.spans import Span
from apiserver_stub.storage.interface import RevisionConflict, Write
from apiserver_stub.verbs.decode import Warnings
from apiserver_stub.verbs.deletion import grace_of
from apiserver_stub.verbs.mutation import Load, Mutation, Outcome
from apiserver_stub.verbs.object_forms import Made
from apiserver_stub.verbs.preconditions import (
    already_exists,
    check_may_create,
    check_namespace,
    check_new,
    check_version,
    object_not_found,
    stale,
)
from apiserver_stub.verbs.query import is_dry_run
from apiserver_stub.verbs.scope import RequestScope, attributes_of, audit_notes
from apiserver_stub.verbs.storage import answered, for_storage, key_of
from apiserver_stub.watch_cache.joint_commits import Also
from apiserver_stub.watch_cache.row import Row
from controller_manager.api.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    invalid,
)
from controller_manager.base.clock import monotonic

_NOT_ASKED = Admission()
_JUDGED = ("create", "update")  # operations with what a caller sent
_OF_STATE = (NotFound, Conflict, AlreadyExists, Forbidden, Invalid)  # refusals that another state may not deserve


class _Lost(Exception):
    """Somebody else was faster; `refusal` is told if it was the last attempt."""

    def __init__(self, refusal: ApiError) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class _Draft(Struct):
    """One attempt: the row it begins from, None if there must be none, and the states before and after, once known.
    `again` says that an object that is there after all is no refusal: the mutation begins again. `seen` is the revision
    at which the row was last found to be current, `rows` are those (resource and key) whose writes have to be waited
    for: that of the object first. A new state that is `whole` is answered as it is stored.

    `sent` is what the caller sent, if others than this server have changed that. Of a kind with a converter, `served`
    is the row in the version of the request, `stored` the new state as it is to be stored, and `answered` what becomes
    of that when it is read again. `spec` is that of the new state in JSON, if it is known.
    """

    mutation: Mutation
    row: Row | None
    run: Run
    notes: Notes
    again: bool
    seen: int = 0
    rows: Sequence[tuple[str, str]] = ()
    new: Tree = {}
    old: Tree | None = None
    warnings: Warnings = ()
    completed: bool = False
    removes: bool = False
    changes: bool = True
    whole: bool = False
    sent: Tree | None = None
    served: Row | None = None
    stored: Tree | None = None
    answered: Tree | None = None
    spec: bytes = b""


async def write(scope: RequestScope, request: APIRequest, mutation: Mutation) -> Outcome:
    """Carry out a mutation. Raises `Conflict` when others were faster again and again, and what the steps refuse; then
    nothing was written. What is refused may be so by what another server has changed since: it is tried once more if
    this one had not heard of all changes.
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


async def _written(scope: RequestScope, request: APIRequest, mutation: Mutation, notes: Notes) -> Outcome:
    refusal: ApiError | None = None
    fresh = False
    for _ in range(scope.limits.attempts):
        try:
            return await _attempt(scope, request, mutation, notes)
        except RevisionConflict:
            pass  # what made it so is visible by now
        except _Lost as lost:
            refusal = lost.refusal
        except _OF_STATE:
            if fresh or not await _was_behind(scope):
                raise
            fresh = True
    raise refusal or stale(request)


async def _attempt(scope: RequestScope, request: APIRequest, mutation: Mutation, notes: Notes) -> Outcome:
    """Take all steps, from the state that is visible here. Raises `_Lost` or `RevisionConflict` if it changes
    meanwhile.
    """
    admission = scope.admission if mutation.operation else _NOT_ASKED
    draft = await _load(scope, request, mutation, notes)
    await draft.run(partial(_edit, scope, request, draft))
    if draft.row is None:
        check_may_create(request.kind, _name(request, draft))
    attributes = _shown(request, draft)
    try:
        await admission.mutate(attributes)
    except ApiError as refusal:
        _warn_too(draft, refusal)
        raise
    _take(draft, attributes)
    if attributes.reinvocation.asked:  # others than this server may have changed what nobody may
        draft.sent = attributes.reinvocation.sent
        _check_again(request, draft)
    await draft.run(partial(_complete, request, draft))
    if draft.row is not None:
        await _check_current(scope, request, draft)
    attributes = _renewed(request, draft, attributes)
    try:
        await admission.validate(attributes)
    except ApiError as refusal:
        _warn_too(draft, refusal)
        raise
    if not draft.changes and not await _is_stale(scope, request, draft.row):
        outcome = await _unchanged(scope, request, draft)
        mutation.note_unchanged(attributes)
        return outcome
    if request.kind.converter is not None:
        await _convert(request.kind, request.kind.converter, draft)
    await _check_current(scope, request, draft)
    also = await admission.allocate(_effect(draft, attributes))
    if is_dry_run(request.query):
        return await _rehearsed(draft)
    outcome = await _commit(scope, request, draft, also)
    if draft.spec and not outcome.warnings:
        mutation.note(Made(draft.new, draft.spec, attributes, also))
    return outcome


def _warn_too(draft: _Draft, refusal: ApiError) -> None:
    """Warn who is refused by admission of what was found before."""
    refusal.warnings = (*draft.warnings, *refusal.warnings)


async def _load(scope: RequestScope, request: APIRequest, mutation: Mutation, notes: Notes) -> _Draft:
    """Begin with the current state, which no other write is about to change. Raises `NotFound`."""
    if mutation.operation == "create":
        if (turn := scope.store.turn(*namespace_row(request.namespace))) is not None:
            await turn
        return _Draft(mutation, None, _run_of(scope, request), notes, again=False)
    key = key_of(request.kind, request.namespace, request.name)
    if (turn := scope.store.turn((request.kind.storage, key))) is not None:
        await turn
    row = scope.store.get(request.kind.storage, key)
    if row is None:
        if mutation.otherwise is None:
            raise object_not_found(request)
        return _Draft(mutation.otherwise, None, _run_of(scope, request), notes, again=True)
    seen = scope.store.revision
    if mutation.read:
        return _Draft(mutation, row, _run_of(scope, request), notes, again=True, seen=seen)
    served = row
    if request.kind.converter is not None:
        (served,) = await scope.conversions.of(request.kind).convert_anew((row,))
    return _Draft(mutation, row, _run_of(scope, request, served.data), notes, again=True, seen=seen, served=served)


def _run_of(scope: RequestScope, request: APIRequest, data: bytes = b"") -> Run:
    """Return the runner of the steps of an attempt: `_edit` and `_complete` may ask for conversions on the way, and are
    repeated then. Until they are through, they leave nothing behind that is not made anew.
    """
    run = run_of(scope.offload, request.http, data)
    return run if request.conversions is None else request.conversions.interrupting(run)


def _edit(scope: RequestScope, request: APIRequest, draft: _Draft) -> None:
    """Make the wanted state as admission sees it: held to what the caller presumes, and with its defaults."""
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
    if not draft.new:  # what was read stays, however often a conversion interrupts what follows
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


def _shown(request: APIRequest, draft: _Draft) -> Attributes:
    """Return the mutation as admission sees it."""
    operation, new, old, view = draft.mutation.operation or "update", draft.new, draft.old, draft.mutation.view
    if view is not None and old is not None:
        new, old = view.show(new), view.show(old)
    tree = None if operation == "delete" else new
    return attributes_of(request, operation, tree, old, _name(request, draft), draft.mutation.options, draft.notes)


def _take(draft: _Draft, attributes: Attributes) -> None:
    """Lay what admission made of the shown object over the object itself."""
    if draft.mutation.view is not None:
        draft.new = draft.mutation.view.take(draft.new, attributes.tree)


def _complete(request: APIRequest, draft: _Draft) -> None:
    """Make an admitted state one that can be stored. Raises `Invalid`."""
    mutation, kind, new, old = draft.mutation, request.kind, draft.new, draft.old
    judged, sent = mutation.operation in _JUDGED, draft.warnings
    template, spec = template_of(kind, new) if judged and old is None else (None, b"")
    is_sound = template is not None and template.sound
    if judged and old is None and not is_sound:  # as it was sent, of which preparing takes away what the server says
        draft.warnings = (*sent, *warnings_of(kind, new, None))
    if old is None:
        mutation.identify(new)
        if template is not None and template.prepare(kind, new):
            draft.spec = spec
            return
    draft.removes = mutation.prepare(new, old)
    if old is not None:
        _manage_fields(draft, new, old)
        draft.changes = draft.removes or new != old
    if judged and not is_sound:
        _judge(request, draft, sent)
    if template is None:
        return
    template.sound = draft.warnings == sent
    if is_sound:
        template.note(spec, new)


def _judge(request: APIRequest, draft: _Draft, sent: Warnings) -> None:
    """Hold a state to the rules of its kind, and note what to warn of besides what was `sent`. Raises `Invalid`."""
    kind, new, old = request.kind, draft.new, draft.old
    problems, told, draft.whole = judge(kind, new, old, request.subresource_name)
    if problems:
        group = str(new["apiVersion"]).rpartition("/")[0]
        refusal = invalid(group, new["kind"], _name(request, draft), problems)
        refusal.warnings = (*sent, *told)
        raise refusal
    draft.warnings = (*draft.warnings, *told)
    if old is not None:
        draft.warnings = (*draft.warnings, *warnings_of(kind, new, old, request.subresource_name))


def _check_again(request: APIRequest, draft: _Draft) -> None:
    """Hold what others made of an object to the request. Raises `BadRequest`, `Conflict` and `UnknownError`."""
    metadata, old = draft.new["metadata"], draft.old
    check_namespace(request, metadata)
    version = metadata.get("resourceVersion")
    if old is None:
        check_new(metadata)
    if old is not None and version and version != old["metadata"]["resourceVersion"]:
        raise stale(request)


def _manage_fields(draft: _Draft, new: Tree, old: Tree) -> None:
    """Record who owns what of a change: its caller what it sent, and nobody what others made of that."""
    mutation, sent = draft.mutation, draft.sent
    if sent is None or mutation.view is not None:
        mutation.manage_fields(new, old)
        return
    mutation.prepare(sent, old)
    mutation.manage_fields(sent, old)
    put_in(new, ("metadata", "managedFields"), sent["metadata"].get("managedFields"))


async def _is_stale(scope: RequestScope, request: APIRequest, row: Row | None) -> bool:
    """Tell whether an object that stays as it is has to be written all the same, since it is kept in an old form: in
    another version than that of storage, or encrypted with another key than the present one.
    """
    kind = request.kind
    if kind.converter is not None and row is not None:
        group, version, _ = kind.storage_version
        if row.field("apiVersion") != f"{group}/{version}":
            return True
    return await scope.store.storage.is_stale(kind.storage, key_of(kind, request.namespace, request.name))


async def _convert(kind: ResourceInfo, converter: Converter, draft: _Draft) -> None:
    """Make the state as it is to be stored, and as it is to be answered: nothing can go wrong with that any more once
    it is committed.
    """
    group, version, _ = kind.storage_version
    (draft.stored,) = await converter((draft.new,), f"{group}/{version}")
    read = draft.stored if kind.from_storage is None else kind.from_storage(deep_copy(draft.stored))
    (draft.answered,) = await converter((read,), kind.api_version)


async def _check_current(scope: RequestScope, request: APIRequest, draft: _Draft) -> None:
    """Wait until no other write of the object, nor of the namespace of a new one, is under way. Raises `_Lost` unless
    the object is still as it was loaded, and `AlreadyExists` for one that was to be new.
    """
    store = scope.store
    if not draft.rows:
        row = request.kind.storage, key_of(request.kind, request.namespace, _name(request, draft))
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
        raise _Lost(stale(request))
    taken = already_exists(request, _name(request, draft), found)
    raise _Lost(taken) if draft.again else taken


async def _was_behind(scope: RequestScope) -> bool:
    """Wait until all is visible here that any server has acknowledged; returns whether it was not."""
    seen = scope.store.revision
    await scope.wait_until_fresh(None)
    return scope.store.revision > seen


def _renewed(request: APIRequest, draft: _Draft, attributes: Attributes) -> Attributes:
    """Return the mutation as admission sees it now that the object is complete."""
    if draft.mutation.view is not None:
        return _shown(request, draft)
    return attributes if attributes.name else replace(attributes, name=_name(request, draft))


def _effect(draft: _Draft, attributes: Attributes) -> Attributes:
    """Return the mutation by what becomes of the object: a change that takes its last hold away deletes it, and a
    deletion that only begins is an update.
    """
    if draft.removes:
        return replace(attributes, operation="delete", object=None, old_object=draft.old)
    return replace(attributes, operation="update", object=draft.new) if attributes.object is None else attributes


async def _unchanged(scope: RequestScope, request: APIRequest, draft: _Draft) -> Outcome:
    assert draft.row is not None
    if await _was_behind(scope):
        await _check_current(scope, request, draft)
    row = draft.served or draft.row
    return Outcome(answered(request.kind, row), draft.warnings)


async def _rehearsed(draft: _Draft) -> Outcome:
    data = await draft.run(partial(encode, in_order(draft.answered or draft.new)))
    return Outcome(data, draft.warnings, draft.row is None, draft.removes)


async def _commit(scope: RequestScope, request: APIRequest, draft: _Draft, also: Sequence[Also]) -> Outcome:
    """Write the object, and what admission writes with it, all or nothing, if what it compares holds. Raises
    `RevisionConflict`.
    """
    kind, row, removes = request.kind, draft.row, draft.removes
    if row is None:
        check_new(draft.new["metadata"])
    data = for_storage(kind, draft.stored or draft.new, draft.spec)
    change = Write(*draft.rows[0], row.revision if row else 0, data, removes)
    is_audited = current_record() is not None
    began = monotonic() if is_audited else 0.0
    if removes and draft.old is not None and grace_of(draft.new) != grace_of(draft.old):
        # Who watches hears that no grace is left before the object is gone.
        marked = await _committed(scope, request, replace(change, deleted=False), ())
        change = replace(change, expected=marked.revision)
    written = await _committed(scope, request, change, also)
    if is_audited:
        note_latency("etcd", monotonic() - began)
    if draft.whole and kind.converter is None:
        written.settled = kind.serial
    if not removes:
        scope.decoded.replace(row, kind, written, draft.new)
    elif row is not None:
        scope.decoded.forget(row)
    if draft.answered is draft.stored:
        return Outcome(answered(kind, written), draft.warnings, row is None, removes)
    assert draft.answered is not None
    draft.answered["metadata"]["resourceVersion"] = str(written.revision)
    return Outcome(encode(in_order(draft.answered)), draft.warnings, row is None, removes)


def _committed(scope: RequestScope, request: APIRequest, change: Write, also: Sequence[Also]) -> Awaitable[Row]:
    if request.span is None:
        return scope.store.commit(change, *also)
    return _commit_traced(request.span, scope, request, change, also)


async def _commit_traced(
    span: Span, scope: RequestScope, request: APIRequest, change: Write, also: Sequence[Also]
) -> Row:
    """Write in a span that is called as that of a storage in etcd."""
    done = "Delete" if change.deleted else "GuaranteedUpdate" if change.expected else "Create"
    kind = request.kind
    described = {"key": f"/{kind.plural}/{change.key}", "group": kind.group, "resource": kind.plural}
    with span.child(f"{done} etcd3", described) as storing:
        storing.event("Encode succeeded", {"len": len(change.data)})
        written = await scope.store.commit(change, *also)
        storing.event("Txn call succeeded" if done == "Create" else "Transaction committed")
    return written


def _name(request: APIRequest, draft: _Draft) -> str:
    """Return the name of the object; a new one may bring it."""
    name: str = request.name or draft.new["metadata"].get("name", "")
    return name
