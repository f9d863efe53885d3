"""Subresources that only a node, or whoever else runs what the object describes, could answer."""

from msgspec.structs import replace

from apiserver_stub.call import APIRequest, Reply
from apiserver_stub.verbs.get import get
from apiserver_stub.verbs.scope import RequestScope
from controller_manager.api.errors import BadRequest


async def refuse_unsupported(scope: RequestScope, call: APIRequest) -> Reply:
    """Nothing but refusals, whatever the method, and without ever upgrading a connection: `NotFound` when there is no
    such object, else `BadRequest` with one sentence. An object may be named with a scheme and a port, as proxies do.
    """
    assert call.subresource is not None
    scheme, _, rest = call.name.partition(":")
    name = rest.partition(":")[0] if ":" in rest else scheme
    await get(scope, replace(call, name=name, query={}))
    raise BadRequest(
        f'the subresource "{call.subresource.name}" of {call.kind.plural} "{name}" is not served by this server'
    )
