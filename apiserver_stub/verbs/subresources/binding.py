"""An object bound to the node that is to run it."""

from functools import partial

from msgspec.structs import replace

from apiserver_stub.api_request import APIRequest, Reply, Tree
from apiserver_stub.encode.body import decode_body
from apiserver_stub.kinds.pod_life import bind_pod, check_binding, hindrance
from apiserver_stub.kinds.trees import get_in
from apiserver_stub.verbs.decode import read_body
from apiserver_stub.verbs.mutation import Edited, Load, Mutation
from apiserver_stub.verbs.preconditions import mismatch
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.storage import created
from apiserver_stub.verbs.write import write
from controller_manager.api.errors import BadRequest, conflict, invalid
from controller_manager.api.timestamps import format_time
from controller_manager.base.clock import utc_now


async def bind(scope: RequestScope, request: APIRequest) -> Reply:
    """Bind an object and return a `Status`. An object is bound once, not while anything keeps it from it, and not while
    it is being deleted.
    """
    subresource = request.subresource
    assert subresource is not None
    binding, warnings = await read_body(scope, request)
    await scope.admit(request, "create", binding)
    problems = list(check_binding(binding))
    if problems:
        raise invalid(subresource.group, subresource.kind, request.name, problems)
    await write(scope, request, Mutation(None, partial(_edit, request, binding), partial(_prepare, binding)))
    return Reply(created(), 201, warnings)


async def bind_named(scope: RequestScope, request: APIRequest) -> Reply:
    """Bind as `bind` does, by a binding that is created on its own and names its object in its metadata."""
    plural, subresource = request.kind.acts_on
    target = scope.kinds.find(request.kind.group, request.kind.version, plural)
    assert target is not None
    read = partial(decode_body, request.http, request.kind.api_version, request.kind.kind)
    name = get_in((await scope.run_of(request.http)(read)).tree, ("metadata", "name"))
    if not isinstance(name, str) or not name:
        raise BadRequest("a binding names the object to bind in metadata.name")
    return await bind(scope, replace(request, kind=target, name=name, subresource=target.subresources[subresource]))


def _edit(request: APIRequest, binding: Tree, load: Load) -> Edited:
    """Return the object, if it is the one that is meant and can be bound. Raises `Conflict`."""
    tree, presumed = load(), binding["metadata"]
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
