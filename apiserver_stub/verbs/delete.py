"""An object removed, or marked to be once its finalizers and its grace allow (API concepts, States and transitions)."""

from apiserver_stub.call import APIRequest, Item, Reply, Tree
from apiserver_stub.verbs.delete_corrupt import remove_unread
from apiserver_stub.verbs.delete_options import DeleteOptions, Preconditions, read_options
from apiserver_stub.verbs.deletion import begin_deletion
from apiserver_stub.verbs.guaranteed_update import Fresh, UpdateOutcome, Write, guaranteed_update
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.storage import success
from controller_manager.api.errors import conflict
from controller_manager.base.clock import utc_now


async def delete(scope: RequestScope, call: APIRequest) -> Reply:
    """A `Status` when the object is gone, the object when something still holds it or its kind is shown even then.

    The status is 202 when the object stays for now although its dependents were asked to go with it in the old way
    (`orphanDependents: false`); clients take every other delete for done at 200.
    """
    call, options = await read_options(scope, call)
    if options.ignore_store_read_error_with_cluster_breaking_potential:
        await remove_unread(scope, call)
        return Reply(success(call))
    outcome = await remove(scope, call, options)
    code = 202 if not outcome.removed and options.orphan_dependents is False else 200
    shown = not outcome.removed or call.kind.strategy.shows_deleted
    return Reply(Item(outcome.data) if shown else success(call, outcome.data), code, warnings(call, options))


async def remove(scope: RequestScope, call: APIRequest, options: DeleteOptions) -> UpdateOutcome:
    """Delete the object of the call as far as can be done now. Raises `NotFound`, `Conflict` or a refusal."""

    async def decide(fresh: Fresh) -> Write | None:
        tree, old = await fresh.run(fresh.twice)
        if options.preconditions is not None:
            _check(call, old["metadata"], options.preconditions)
        await scope.admit(call, "delete", old=old)
        removes = begin_deletion(tree, call.kind.strategy, utc_now(), options.grace_period_seconds, options.policy)
        if not removes and await fresh.run(lambda: tree == old):
            return None
        return Write(tree, removes)

    return await guaranteed_update(scope, call, decide)


def warnings(call: APIRequest, options: DeleteOptions) -> tuple[str, ...]:
    """What a caller may not expect who says nothing of dependents."""
    if options.policy is not None or call.kind.strategy.dependents != "Orphan":
        return ()
    kept = (
        f"what {call.kind.plural} own is kept by default when they are deleted: set propagationPolicy=Background to "
        "have it deleted too, or propagationPolicy=Orphan to keep it without this warning"
    )
    return (kept,)


def _check(call: APIRequest, metadata: Tree, presumed: Preconditions) -> None:
    """Raises `Conflict`, which names the kind of the object where others name its resource."""
    for what, wanted, found in (
        ("UID", presumed.uid, metadata["uid"]),
        ("ResourceVersion", presumed.resource_version, metadata["resourceVersion"]),
    ):
        if wanted is not None and wanted != found:
            why = f"the {what} in the precondition ({wanted}) does not match that of the object ({found})"
            raise conflict(call.kind.group, call.kind.kind, call.name, why)
