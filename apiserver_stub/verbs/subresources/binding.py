"""An object bound to the node that is to run it."""

from functools import partial

from msgspec.structs import replace

from apiserver_stub.call import APIRequest, Reply, Tree
from apiserver_stub.encode.body import decode_body
from apiserver_stub.kinds.binding import bind_pod, check_binding, hindrance
from apiserver_stub.kinds.trees import get_in
from apiserver_stub.verbs.guaranteed_update import Fresh, Write, guaranteed_update
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.storage import created, mismatch
from apiserver_stub.verbs.subresources.read_body import read_body
from controller_manager.api.errors import BadRequest, conflict, invalid
from controller_manager.api.timestamps import format_time
from controller_manager.base.clock import utc_now


async def bind(scope: RequestScope, call: APIRequest) -> Reply:
    """A `Status`. An object is bound once, not while anything keeps it from it, and not while it is being deleted."""
    part = call.subresource
    assert part is not None
    binding, warnings = await read_body(scope, call)
    await scope.admit(call, "create", binding)
    problems = list(check_binding(binding))
    if problems:
        raise invalid(part.group, part.kind, call.name, problems)

    async def decide(fresh: Fresh) -> Write:
        tree, old = await fresh.run(fresh.twice)
        _check(call, old, binding["metadata"])
        bind_pod(tree, binding, format_time(utc_now()))
        return Write(tree)

    await guaranteed_update(scope, call, decide)
    return Reply(created(), 201, warnings)


async def bind_named(scope: RequestScope, call: APIRequest) -> Reply:
    """The same for a binding that is created on its own and names its object in its metadata."""
    plural, part = call.kind.acts_on
    target = scope.kinds.find(call.kind.group, call.kind.version, plural)
    assert target is not None
    read = partial(decode_body, call.http, call.kind.api_version, call.kind.kind)
    name = get_in((await scope.run_of(call.http)(read)).tree, ("metadata", "name"))
    if not isinstance(name, str) or not name:
        raise BadRequest("a binding names the object to bind in metadata.name")
    return await bind(scope, replace(call, kind=target, name=name, subresource=target.subresources[part]))


def _check(call: APIRequest, tree: Tree, presumed: Tree) -> None:
    metadata = tree["metadata"]
    for what, field in (("UID", "uid"), ("ResourceVersion", "resourceVersion")):
        if presumed.get(field) and presumed[field] != metadata[field]:
            raise mismatch(call, what, presumed[field], metadata[field])
    why = hindrance(tree)
    if why:
        raise conflict(call.kind.group, f"{call.kind.plural}/{call.part}", call.name, why)
