"""Delete objects, or mark them for deletion until finalizers and the grace period allow it (API concepts, States and
transitions).
"""

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

_UNSAFE_DELETE = f"apiserver.{GROUP_DOMAIN}/unsafe-delete-ignore-read-error"  # audit annotation


async def delete(scope: RequestScope, request: APIRequest) -> Reply:
    """Delete the object. Return a `Status` if it is gone, or the object if finalizers or a grace period still hold it
    or if its kind always returns it.

    The status code is 202 if the object stays and the request set `orphanDependents: false`; otherwise it is 200.
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
    """Delete a collection and return the list of the objects as they were before. With `limit`, the list has a
    `continue` token for the next page. Kinds that do not return deleted objects answer with a `Status` that has the
    token.

    If some deletes fail, the first error is raised after all have been tried.
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
    """Return the mutation that deletes the request's object, or marks it if it cannot be deleted yet."""
    edit, prepare = partial(_presumed, request, options.preconditions), partial(_prepare, request, options)
    return Mutation(operation, edit, prepare, options=options.as_tree() if operation else None)


def _presumed(request: APIRequest, presumed: Preconditions | None, load: Load) -> Edited:
    """Return the object if the preconditions hold. Raises `Conflict`; its details name the kind, not the resource."""
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
    """Return the mutation that removes an unreadable object and ignores its finalizers (API concepts, corrupt
    resource). Watchers get its name, namespace and uid only.
    """

    def remains(row: Row) -> Tree:
        """Raises `Invalid` if the object can be read: use an ordinary delete then."""
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
    """Return a warning if the kind orphans its dependents by default and the request does not set a policy."""
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
    """Delete the objects of these rows concurrently and return the errors."""

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
