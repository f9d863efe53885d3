"""Objects removed, or marked to be once finalizers and grace allow (API concepts, States and transitions)."""

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from apiserver_stub.admission import Operation
from apiserver_stub.request.api_request import APIRequest, Item, Reply
from apiserver_stub.request.audit import annotate
from apiserver_stub.verbs.deletion import IGNORE, DeleteOptions, Preconditions, begin_deletion, read_options, refused
from apiserver_stub.verbs.list import items_of, list_semantics, read_page
from apiserver_stub.verbs.mutation import Edited, Load, Mutation
from apiserver_stub.verbs.preconditions import check_unsafe_delete_authorized
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.selection import select
from apiserver_stub.verbs.storage import all_from_storage, batches, success
from apiserver_stub.verbs.write import write
from apiserver_stub.watch_cache.row import CorruptRow, Row
from controller_manager.common.api.errors import ApiError, Cause, NotFound, conflict, forbidden, invalid
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.tasks import all_of

_UNSAFE_DELETE = f"apiserver.{GROUP_DOMAIN}/unsafe-delete-ignore-read-error"  # the annotation of audit events


async def delete(scope: RequestScope, request: APIRequest) -> Reply:
    """Delete the object. Return a `Status` when it is gone, the object when something still holds it or its kind is
    shown even then.

    The status is 202 when the object stays for now although its dependents were asked to go with it in the old way
    (`orphanDependents: false`); clients take every other delete for done at 200.
    """
    request, options = await read_options(scope, request)
    if request.name in request.kind.strategy.undeletable:
        kind = request.kind
        raise forbidden(kind.group, kind.plural, request.name, "the system needs this object; it cannot be deleted")
    if options.ignore_store_read_error_with_cluster_breaking_potential:
        annotate(_UNSAFE_DELETE, "")
        await check_unsafe_delete_authorized(scope.authorizer, request)
        await write(scope, request, _removal_unread(request))
        return Reply(success(request))
    outcome = await write(scope, request, removal(request, options))
    code = 202 if not outcome.removed and options.orphan_dependents is False else 200
    shown = not outcome.removed or request.kind.strategy.shows_deleted
    body = Item(outcome.data) if shown else success(request, outcome.data)
    return Reply(body, code, _warnings(request, options))


async def delete_collection(scope: RequestScope, request: APIRequest) -> Reply:
    """Delete a collection and return the list of what was found, as it was before; with `limit`, it has the `continue`
    token with which to delete the next ones. Kinds that do not list what they delete answer a `Status` with the same
    token.

    When objects were refused, or cannot be read, the first refusal is raised after all have been tried.
    """
    request, options = await read_options(scope, request)
    if options.ignore_store_read_error_with_cluster_breaking_potential:
        message = "Invalid value: true: is for one object at a time, not for a collection; leave the option out"
        raise refused([Cause(reason="FieldValueInvalid", message=message, field=IGNORE)])
    chosen = select(request, shards=scope.shards is not None)
    reading, page = await read_page(scope, request, list_semantics(request.query), chosen)
    refusals: list[ApiError] = []
    for rows in batches(page.rows, scope.limits.deletes):
        refusals += await delete_rows(scope, request, rows, options)
    if refusals:
        raise refusals[0]
    warnings = _warnings(request, options)
    if not request.kind.strategy.lists_deleted:
        return Reply(success(request, token=reading.token(page)), 200, warnings)
    objects = await all_from_storage(request.kind, page.rows, scope.offload)
    return Reply(items_of(reading, page, objects, chosen), 200, warnings)


def removal(request: APIRequest, options: DeleteOptions, operation: Operation | None = "delete") -> Mutation:
    """Return the mutation that deletes the object of a request as far as can be done now."""
    edit, prepare = partial(_presumed, request, options.preconditions), partial(_prepare, request, options)
    return Mutation(operation, edit, prepare, options=options.as_tree() if operation else None)


def _presumed(request: APIRequest, presumed: Preconditions | None, load: Load) -> Edited:
    """Return the object the caller means. Raises `Conflict`, which names the kind where others name the resource."""
    tree = load.shared()
    metadata = tree["metadata"]
    if presumed is not None:
        for what, wanted, found in (
            ("UID", presumed.uid, metadata["uid"]),
            ("ResourceVersion", presumed.resource_version, metadata["resourceVersion"]),
        ):
            if wanted is not None and wanted != found:
                why = f"the {what} in the precondition ({wanted}) does not match that of the object ({found})"
                raise conflict(request.kind.group, request.kind.kind, request.name, why)
    return Edited(tree)


def _prepare(request: APIRequest, options: DeleteOptions, new: Tree, _old: Tree | None) -> bool:
    return begin_deletion(new, request.kind.strategy, utc_now(), options.grace_period_seconds, options.policy)


def _removal_unread(request: APIRequest) -> Mutation:
    """Return the mutation that removes an object that cannot even be read, whatever holds it (API concepts, the corrupt
    resource). Watchers are told the little that is known of it.
    """

    def remains(row: Row) -> Tree:
        """Raises `Invalid` for an object that can be read: the normal way is open to it."""
        kind = request.kind
        if not isinstance(row, CorruptRow):
            message = "Invalid value: true: is only for objects that are corrupt in the store; leave the option out"
            cause = Cause(reason="FieldValueInvalid", message=message, field=IGNORE)
            raise invalid(kind.group, kind.plural, request.name, [cause])
        known = {"name": request.name, "namespace": request.namespace, "uid": row.uid}
        metadata = {name: value for name, value in known.items() if value}
        return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}

    return Mutation("delete", lambda load: Edited(load()), lambda _new, _old: True, read=remains)


def _warnings(request: APIRequest, options: DeleteOptions) -> tuple[str, ...]:
    """Return the warning of what a caller may not expect who says nothing of dependents."""
    if options.policy is not None or request.kind.strategy.dependents != "Orphan":
        return ()
    kept = (
        f"what {request.kind.plural} own is kept by default when they are deleted: set propagationPolicy=Background to "
        "have it deleted too, or propagationPolicy=Orphan to keep it without this warning"
    )
    return (kept,)


async def delete_rows(
    scope: RequestScope, request: APIRequest, rows: Sequence[Row], options: DeleteOptions
) -> list[ApiError]:
    """Delete the objects of these rows, all at the same time; return the refusals."""

    async def one(row: Row) -> ApiError | None:
        named = replace(request, namespace=row.namespace, name=row.name)
        try:
            await write(scope, named, removal(named, options))
        except NotFound:
            return None
        except ApiError as refusal:
            return refusal
        return None

    return [refusal for refusal in await all_of(*map(one, rows)) if refusal is not None]
