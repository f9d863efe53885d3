"""An object deleted on request, as far as admission finds that its budget of disruptions allows it."""

from apiserver_stub.call import Call, Reply
from apiserver_stub.encode.body import decode_body
from apiserver_stub.kinds.schema import ANYTHING
from apiserver_stub.verbs.create import check_namespace
from apiserver_stub.verbs.delete import remove
from apiserver_stub.verbs.delete_options import as_options
from apiserver_stub.verbs.incoming import fit
from apiserver_stub.verbs.rows import success
from apiserver_stub.verbs.tools import Tools
from apiserver_stub.verbs.update import check_name


async def evict(tools: Tools, call: Call) -> Reply:
    """A `Status`, whether the object is gone or only going. Raises `TooManyRequests` when it has to stay for now."""
    part = call.subresource
    assert part is not None
    body = decode_body(call.request, f"{part.group}/{part.version}", part.kind)
    fit(call, body, tools.kinds.body(part.group, part.version, part.kind) or ANYTHING, part.kind)
    metadata = body.tree.setdefault("metadata", {})
    check_name(call, metadata)
    check_namespace(call, metadata)
    call, options = as_options(tools, call, body.tree.get("deleteOptions") or {})
    await remove(tools, call, options)
    return Reply(success(call), 201)
