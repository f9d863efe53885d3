"""An object removed, or marked to be once its finalizers and its grace allow (document 1, States and transitions)."""

from datetime import timedelta

from apiserver_stub.call import Call, Item, Reply, Tree
from apiserver_stub.kinds.strategy import Strategy
from apiserver_stub.verbs.delete_options import HOLDS, DeleteOptions, Preconditions, read_options
from apiserver_stub.verbs.modify import Fresh, Outcome, Write, modify
from apiserver_stub.verbs.rows import mismatch, success
from apiserver_stub.verbs.tools import Tools
from controller_manager.api.timestamps import format_time, parse_time
from controller_manager.base.clock import utc_now

_HOLDS = frozenset(name for names in HOLDS.values() for name in names)


async def delete(tools: Tools, call: Call) -> Reply:
    """A `Status` when the object is gone, the object when something still holds it or its kind is shown even then."""
    call, options = read_options(call)
    outcome = await remove(tools, call, options)
    shown = not outcome.removed or call.kind.strategy.shows_deleted
    return Reply(Item(outcome.data) if shown else success(call, outcome.data))


async def remove(tools: Tools, call: Call, options: DeleteOptions) -> Outcome:
    """Delete the object of the call as far as can be done now. Raises `NotFound`, `Conflict` or a refusal."""

    def decide(fresh: Fresh) -> Write | None:
        tree, old = fresh(), fresh()
        if options.preconditions is not None:
            _check(call, old["metadata"], options.preconditions)
        tools.admit(call, "delete", old, None)
        removes = mark(tree, options, call.kind.strategy)
        if not removes and tree == old:
            return None
        tools.settle(call, "delete", tree, old)
        return Write(tree, removes)

    return await modify(tools, call, decide)


def mark(tree: Tree, options: DeleteOptions, strategy: Strategy) -> bool:
    """Note in place that the object is being deleted; whether it may go at once, and then it stays as it was.

    While a grace runs it can only be shortened, and that counts from the first request.
    """
    metadata = tree["metadata"]
    grace, running = strategy.grace(tree, options.grace_period_seconds), metadata.get("deletionGracePeriodSeconds")
    if running and grace >= running:
        return False
    _hold(metadata, options.finalizers)
    if not grace and not strategy.still_held(tree):
        return True
    if "deletionTimestamp" not in metadata:
        strategy.mark_deleted(tree)
        metadata["deletionTimestamp"] = format_time(utc_now() + timedelta(seconds=grace))
    elif running:
        ends = parse_time(metadata["deletionTimestamp"])
        metadata["deletionTimestamp"] = format_time(ends - timedelta(seconds=running - grace))
    metadata["deletionGracePeriodSeconds"] = grace
    return False


def _hold(metadata: Tree, wanted: tuple[str, ...] | None) -> None:
    """Leave of the finalizers of propagation those that are wanted."""
    if wanted is None:
        return
    held = metadata.get("finalizers", [])
    finalizers = [name for name in held if name not in _HOLDS or name in wanted]
    finalizers += [name for name in wanted if name not in held]
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)


def _check(call: Call, metadata: Tree, presumed: Preconditions) -> None:
    if presumed.uid is not None and presumed.uid != metadata["uid"]:
        raise mismatch(call, "UID", presumed.uid, metadata["uid"])
    version = presumed.resource_version
    if version is not None and version != metadata["resourceVersion"]:
        raise mismatch(call, "ResourceVersion", version, metadata["resourceVersion"])
