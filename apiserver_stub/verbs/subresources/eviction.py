"""An object deleted on request, as far as the budget of disruptions meant for it allows."""

import msgspec
import orjson
from msgspec.structs import replace

from apiserver_stub.call import Call, Reply, Tree
from apiserver_stub.kinds.disruption import BUDGETS, Price, charge, price
from apiserver_stub.kinds.kind import Kind
from apiserver_stub.verbs.delete import remove
from apiserver_stub.verbs.delete_options import DeleteOptions, Preconditions, as_options
from apiserver_stub.verbs.modify import Fresh, Write, modify
from apiserver_stub.verbs.query import is_dry_run
from apiserver_stub.verbs.rows import created, key_of, missing, read, stale
from apiserver_stub.verbs.subresources.body import read_body
from apiserver_stub.verbs.tools import Tools
from controller_manager.api.errors import Conflict, NotFound
from controller_manager.api.timestamps import format_time
from controller_manager.base.clock import utc_now


async def evict(tools: Tools, call: Call) -> Reply:
    """A `Status`, whether the object is gone or only going. Raises `TooManyRequests` when it has to stay for now, and
    what a delete raises; then nothing is taken from a budget.
    """
    tree, warnings = await read_body(tools, call)
    call, options = as_options(tools, call, tree.get("deleteOptions") or {})
    tried = replace(call, query={**call.query, "dryRun": "All"})
    for _ in range(tools.limits.attempts):
        cost, held = _judge(tools, call, options)
        try:
            await remove(tools, tried, held)
            if cost.budget:
                await _pay(tools, call, cost.budget)
            if not is_dry_run(call.query):
                await remove(tools, call, held)
        except _Again:
            continue
        except Conflict:
            if held is options or not _has_changed(tools, call, held):
                raise
            continue
        return Reply(created(), 201, warnings)
    raise stale(call)


class _Again(Exception):
    """What was judged by is no longer so."""


def _judge(tools: Tools, call: Call, options: DeleteOptions) -> tuple[Price, DeleteOptions]:
    """What the eviction costs now, and the options to delete with: they hold to the state that was judged when its
    price is that of this state alone, unless the caller holds to a state anyway.
    """
    kind, budgets = call.kind, _budgets(tools)
    row = tools.store.get(kind.storage, key_of(kind, call.namespace, call.name))
    if row is None:
        raise missing(call)
    found: Tree = read(kind, row.data)
    rows = tools.store.snapshot(budgets.storage).items(prefix=f"{call.namespace}/")
    cost = price(found, (orjson.loads(each.data) for each in rows))
    presumed = options.preconditions or Preconditions()
    if not cost.as_it_is or presumed.resource_version is not None:
        return cost, options
    version = found["metadata"]["resourceVersion"]
    held = msgspec.structs.replace(presumed, resource_version=version)
    return cost, msgspec.structs.replace(options, preconditions=held)


def _has_changed(tools: Tools, call: Call, held: DeleteOptions) -> bool:
    row = tools.store.get(call.kind.storage, key_of(call.kind, call.namespace, call.name))
    presumed = held.preconditions.resource_version if held.preconditions else None
    return row is None or str(row.revision) != presumed


async def _pay(tools: Tools, call: Call, budget: str) -> None:
    async def decide(fresh: Fresh) -> Write:
        return Write(charge(await fresh.run(fresh), call.name, format_time(utc_now())))

    try:
        await modify(tools, replace(call, kind=_budgets(tools), name=budget, subresource=None), decide)
    except NotFound:
        raise _Again from None


def _budgets(tools: Tools) -> Kind:
    found = tools.kinds.find(*BUDGETS)
    assert found is not None
    return found
