"""An object bound to the node that is to run it."""

from apiserver_stub.call import Call, Reply, Tree
from apiserver_stub.encode.body import decode_body
from apiserver_stub.kinds.schema import ANYTHING
from apiserver_stub.kinds.trees import dicts, get_in, put_in
from apiserver_stub.verbs.create import check_namespace
from apiserver_stub.verbs.incoming import fit
from apiserver_stub.verbs.modify import Fresh, Write, modify
from apiserver_stub.verbs.rows import mismatch, success
from apiserver_stub.verbs.tools import Tools
from apiserver_stub.verbs.update import check_name
from controller_manager.api.errors import Cause, Conflict, conflict, invalid
from controller_manager.api.timestamps import format_time
from controller_manager.base.clock import utc_now

_SCHEDULED = "PodScheduled"


async def bind(tools: Tools, call: Call) -> Reply:
    """A `Status`. An object is bound once, and not while it is being deleted."""
    binding = _read(tools, call)

    def decide(fresh: Fresh) -> Write:
        tree = fresh()
        _check(call, tree, binding["metadata"])
        tools.admit(call, "update", tree, fresh())
        _lay_over(tree, binding)
        return Write(tree)

    await modify(tools, call, decide)
    return Reply(success(call), 201)


def _read(tools: Tools, call: Call) -> Tree:
    part = call.subresource
    assert part is not None
    api_version = f"{part.group}/{part.version}" if part.group else part.version
    body = decode_body(call.request, api_version, part.kind)
    fit(call, body, tools.kinds.body(part.group, part.version, part.kind) or ANYTHING, part.kind)
    metadata = body.tree.setdefault("metadata", {})
    check_name(call, metadata)
    check_namespace(call, metadata)
    if not get_in(body.tree, ("target", "name")):
        cause = Cause(reason="FieldValueRequired", message="Required value", field="target.name")
        raise invalid(part.group, part.kind, call.name, [cause])
    return body.tree


def _check(call: Call, tree: Tree, presumed: Tree) -> None:
    uid, node = presumed.get("uid"), get_in(tree, ("spec", "nodeName"))
    if uid and uid != tree["metadata"]["uid"]:
        raise mismatch(call, "UID", uid, tree["metadata"]["uid"])
    if "deletionTimestamp" in tree["metadata"]:
        raise _refused(call, f"{call.name} is being deleted, cannot be assigned to a host")
    if node:
        raise _refused(call, f'{call.name} is already assigned to node "{node}"')


def _refused(call: Call, why: str) -> Conflict:
    return conflict(call.kind.group, call.kind.plural, call.name, why)


def _lay_over(tree: Tree, binding: Tree) -> None:
    put_in(tree, ("spec", "nodeName"), binding["target"]["name"])
    annotations = binding["metadata"].get("annotations")
    if annotations:
        tree["metadata"]["annotations"] = {**tree["metadata"].get("annotations", {}), **annotations}
    known = [c for _, c in dicts(get_in(tree, ("status", "conditions"))) if c.get("type") != _SCHEDULED]
    scheduled = {"type": _SCHEDULED, "status": "True", "lastTransitionTime": format_time(utc_now())}
    put_in(tree, ("status", "conditions"), [*known, scheduled])
