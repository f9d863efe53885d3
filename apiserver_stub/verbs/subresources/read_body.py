"""The body of a request for a subresource that takes another kind than its object's."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from apiserver_stub.call import APIRequest, Tree
from apiserver_stub.encode.body import Body, decode_body
from apiserver_stub.kinds.resource_info import Subresource
from apiserver_stub.verbs.create import check_namespace
from apiserver_stub.verbs.decode import Warnings, fit
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.update import check_name

# Versions no longer served in which clients still send what has the same fields.
_OLDER: Mapping[str, tuple[str, ...]] = MappingProxyType({"Eviction": ("policy/v1beta1",)})


async def read_body(scope: RequestScope, call: APIRequest, *, named: bool = True) -> tuple[Tree, Warnings]:
    """The body, always with metadata, in which name and namespace are those of the URL; the name may be left out
    unless it must be `named`. Raises `BadRequest`.
    """
    part = call.subresource
    assert part is not None
    body, warnings = await scope.run_of(call.http)(partial(_fitted, scope, call, part))
    metadata = body.tree.setdefault("metadata", {})
    if not named and not metadata.get("name"):
        metadata["name"] = call.name
    check_name(call, metadata)
    check_namespace(call, metadata)
    return body.tree, warnings


def _fitted(scope: RequestScope, call: APIRequest, part: Subresource) -> tuple[Body, Warnings]:
    version = f"{part.group}/{part.version}" if part.group else part.version
    body = decode_body(call.http, version, part.kind, _OLDER.get(part.kind, ()))
    node = part.schema
    return body, fit(call, body, node, part.kind)
