"""Subresources of pods: binding to a node, and eviction within the limits of PodDisruptionBudgets."""

from functools import partial

import msgspec
import orjson
from msgspec.structs import replace

from apiserver_stub.common.offload import at_once
from apiserver_stub.encode.body import decode_body
from apiserver_stub.kinds.at_rest import read
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.strategies.disruption import BUDGETS, Price, charge, price
from apiserver_stub.kinds.strategies.pods import bind_pod, check_binding, hindrance, mark_evicted
from apiserver_stub.kinds.values.trees import get_in
from apiserver_stub.request.api_request import APIRequest, Reply
from apiserver_stub.verbs.decode import read_body
from apiserver_stub.verbs.delete import removal
from apiserver_stub.verbs.deletion import DeleteOptions, Preconditions, as_options
from apiserver_stub.verbs.mutation import Edited, Load, Mutation
from apiserver_stub.verbs.preconditions import mismatch, object_not_found, stale
from apiserver_stub.verbs.query import is_dry_run
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.storage import MUCH, created, key_of
from apiserver_stub.verbs.write import write
from controller_manager.common.api.errors import BadRequest, Conflict, NotFound, conflict, invalid
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import utc_now


async def bind(scope: RequestScope, request: APIRequest, asked: APIRequest | None = None) -> Reply:
    """Bind an object to a node and return a `Status`. The object must be unbound, not gated and not terminating.
    `asked` is the request that admission sees, if it is another one.
    """
    subresource = request.subresource
    assert subresource is not None
    binding, warnings = await read_body(scope, request)
    warnings = (*warnings, *await scope.admit(asked or request, "create", binding))
    problems = list(check_binding(binding))
    if problems:
        raise invalid(subresource.group, subresource.kind, request.name, problems)
    await write(scope, request, Mutation(None, partial(_edit, request, binding), partial(_prepare, binding)))
    return Reply(created(), 201, warnings)


async def bind_named(scope: RequestScope, request: APIRequest) -> Reply:
    """Bind as `bind` does, for a Binding that is created directly and names its object in metadata."""
    plural, subresource = request.kind.acts_on
    target = scope.kinds.find(request.kind.group, request.kind.version, plural)
    assert target is not None
    read = partial(decode_body, request.http, request.kind.api_version, request.kind.kind)
    name = get_in((await scope.run_of(request)(read)).tree, ("metadata", "name"))
    if not isinstance(name, str) or not name:
        raise BadRequest("a binding names the object to bind in metadata.name")
    named = replace(request, kind=target, name=name, subresource=target.subresources[subresource])
    return await bind(scope, named, replace(request, name=name))


def _edit(request: APIRequest, binding: Tree, load: Load) -> Edited:
    """Return the object if the preconditions hold and it can be bound. Raises `Conflict`."""
    tree, presumed = load.shared(), binding["metadata"]
    metadata = tree["metadata"]
    for what, field in (("UID", "uid"), ("ResourceVersion", "resourceVersion")):
        if presumed.get(field) and presumed[field] != metadata[field]:
            raise mismatch(request, what, presumed[field], metadata[field])
    why = hindrance(tree)
    if why:
        raise conflict(request.kind.group, f"{request.kind.plural}/{request.subresource_name}", request.name, why)
    return Edited(tree)


def _prepare(binding: Tree, new: Tree, _old: Tree | None) -> bool:
    bind_pod(new, binding, format_time(utc_now()))
    return False


async def evict(scope: RequestScope, request: APIRequest) -> Reply:
    """Evict an object and return a `Status`, whether the object is gone or terminating. Raises `TooManyRequests` if a
    budget does not allow it, and the errors of a delete; the budget is then unchanged.
    """
    tree, warnings = await read_body(scope, request)
    request, options = as_options(scope, request, tree.get("deleteOptions") or {})
    warnings = (*warnings, *await scope.admit(request, "create", tree))
    tried = replace(request, query={**request.query, "dryRun": "All"})
    for _ in range(scope.limits.attempts):
        cost, held = await _judge(scope, request, options)
        try:
            await write(scope, tried, _departure(tried, held))
            if cost.budget:
                await _pay(scope, request, cost.budget)
            if not is_dry_run(request.query):
                await write(scope, request, _departure(request, held))
        except _Again:
            continue
        except Conflict:
            if held is options or not _has_changed(scope, request, held):
                raise
            continue
        return Reply(created(), 201, warnings)
    raise stale(request)


def _departure(request: APIRequest, options: DeleteOptions) -> Mutation:
    """Return the mutation that marks an object as evicted and deletes it."""
    deletion = removal(request, options, None)

    def prepare(new: Tree, old: Tree | None) -> bool:
        mark_evicted(new, format_time(utc_now()))
        return deletion.prepare(new, old)

    return replace(deletion, prepare=prepare)


class _Again(Exception):
    """The state that the decision was based on has changed."""


async def _judge(scope: RequestScope, request: APIRequest, options: DeleteOptions) -> tuple[Price, DeleteOptions]:
    """Return the price of the eviction and the options of the delete. If the price holds for the current state only,
    the options get its resourceVersion as a precondition, unless the caller set one.
    """
    kind, budgets = request.kind, _budgets(scope)
    row = scope.store.get(kind.storage, key_of(kind, request.namespace, request.name))
    if row is None:
        raise object_not_found(request)
    found: Tree = read(kind, row.data)
    rows = tuple(scope.store.snapshot(budgets.storage).items(prefix=f"{request.namespace}/"))
    run = scope.offload.run if sum(each.size for each in rows) > MUCH else at_once
    cost = await run(lambda: price(found, (orjson.loads(each.data) for each in rows)))
    presumed = options.preconditions or Preconditions()
    if not cost.as_it_is or presumed.resource_version is not None:
        return cost, options
    version = found["metadata"]["resourceVersion"]
    held = msgspec.structs.replace(presumed, resource_version=version)
    return cost, msgspec.structs.replace(options, preconditions=held)


def _has_changed(scope: RequestScope, request: APIRequest, held: DeleteOptions) -> bool:
    row = scope.store.get(request.kind.storage, key_of(request.kind, request.namespace, request.name))
    presumed = held.preconditions.resource_version if held.preconditions else None
    return row is None or str(row.revision) != presumed


async def _pay(scope: RequestScope, request: APIRequest, budget: str) -> None:
    def edit(load: Load) -> Edited:
        return Edited(charge(load(), request.name, format_time(utc_now())))

    try:
        paid = replace(request, kind=_budgets(scope), name=budget, subresource=None)
        await write(scope, paid, Mutation(None, edit))
    except NotFound:
        raise _Again from None


def _budgets(scope: RequestScope) -> ResourceInfo:
    found = scope.kinds.find(*BUDGETS)
    assert found is not None
    return found
