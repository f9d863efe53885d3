"""Change an object by a patch document (API concepts, Update operations)."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec

from apiserver_stub.encode.body import (
    JSON_PATCH,
    MERGE_PATCH,
    PATCHES,
    STRATEGIC_MERGE_PATCH,
    DecodedBody,
    media_type,
    unsupported,
)
from apiserver_stub.encode.json import check_depth, decode_noting
from apiserver_stub.kinds.schema.schema import Schema
from apiserver_stub.kinds.shared_parts import detached, may_share
from apiserver_stub.kinds.structural.embedded import fit_metadata
from apiserver_stub.patch import json_patch, merge
from apiserver_stub.request.api_request import APIRequest, Reply
from apiserver_stub.verbs.apply import apply
from apiserver_stub.verbs.decode import fit, fit_beside, note_patch
from apiserver_stub.verbs.mutation import Edited, Load
from apiserver_stub.verbs.preconditions import check_name, check_namespace, keep_uid
from apiserver_stub.verbs.query import is_apply
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.update import change
from apiserver_stub.verbs.write import write
from controller_manager.common.api.errors import ApiError, BadRequest, Cause, Invalid, invalid
from controller_manager.common.api.tree import Tree


def _apply_operations(tree: Tree, document: Any, _node: Schema) -> Tree:
    patched = json_patch.apply(tree, document)
    check_depth(patched)  # other patches cannot exceed the depth of tree and patch
    return patched


_APPLY: Mapping[str, Callable[[Tree, Any, Schema], Tree]] = MappingProxyType({
    JSON_PATCH: _apply_operations,
    MERGE_PATCH: lambda tree, document, _node: merge.apply(tree, document),
    STRATEGIC_MERGE_PATCH: merge.apply_strategic,
})  # fmt: skip
_MOST_SHOWN = 16 * 1024  # characters of a patched object in an error message
# Media types for kinds outside the published API, which have no merge keys for lists.
_WITHOUT_STRATEGIC = tuple(media for media in PATCHES if media != STRATEGIC_MERGE_PATCH)


class Patch:
    """The patch document of a request, decoded once. Raises `BadRequest` or `UnsupportedMediaType`."""

    def __init__(self, request: APIRequest) -> None:
        media = media_type(request.http)
        found = _APPLY.get(media)
        offered = PATCHES if request.kind.definition else _WITHOUT_STRATEGIC
        if found is None or media not in offered:
            raise unsupported(offered)
        note_patch(request)
        self._apply = found
        self._document, self.duplicates = decode_noting(request.http.body)

    def apply(self, tree: Tree, node: Schema) -> Tree:
        """Return the patched tree. Unchanged parts are shared with `tree`."""
        return self._apply(tree, self._document, node)

    def check(self, tree: Tree, api_version: str, kind: str) -> None:
        """Reject a patched object that has another kind or no metadata. A missing apiVersion or kind is restored. A
        strategic merge patch cannot change them, so its values are ignored.
        """
        for name, value in (("apiVersion", api_version), ("kind", kind)):
            if tree.get(name) is None or self._apply is merge.apply_strategic:
                tree[name] = value
            elif tree[name] != value:
                raise unfit(f"{name} must stay {value}")
        metadata = tree.get("metadata")
        if metadata is None:
            raise BadRequest("a patch must leave the metadata")
        if not isinstance(metadata, dict):
            raise unfit("metadata must be an object")


def _check_custom(tree: Tree, refuse: Callable[[str], ApiError]) -> None:
    """Reject a patched custom object without a kind or with metadata that is not an object. The value of the kind is
    checked later.
    """
    if type(tree.get("kind")) is not str or not tree["kind"]:
        raise refuse(f"Object 'Kind' is missing in '{_json(tree)}'")
    if tree.get("metadata") is None:
        tree["metadata"] = {}
    if report := fit_metadata(tree["metadata"]).wrong:
        raise refuse(report[0])


async def patch(scope: RequestScope, request: APIRequest) -> Reply:
    """Patch the object and return it. If nothing changes, the object keeps its resourceVersion."""
    if is_apply(request):
        return await apply(scope, request)
    document = await scope.run_of(request)(partial(Patch, request))
    return (await write(scope, request, change(scope, request, partial(_edit, request, document)))).reply()


def _edit(request: APIRequest, document: Patch, load: Load) -> Edited:
    kind, shares = request.kind, may_share(request.kind)
    live = load.state if shares else load()
    tree = document.apply(live, kind.schema)
    if shares:
        tree = detached(tree, live)

    def refuse(why: str) -> ApiError:
        return unfit(why, document.apply(load(), kind.schema))

    if kind.custom:
        _check_custom(tree, refuse)
    else:
        document.check(tree, kind.api_version, kind.kind)
    body = DecodedBody(tree, document.duplicates)
    warnings = fit_beside(request, body, live, refuse) if shares else fit(request, body, kind.schema, kind.kind, refuse)
    metadata = tree["metadata"]
    check_name(request, metadata)
    check_namespace(request, metadata)
    keep_uid(request, metadata, live["metadata"])
    return Edited(tree, warnings, completed=shares)


def _json(tree: Tree) -> str:
    return msgspec.json.encode(tree, order="sorted").decode()[:_MOST_SHOWN]


def unfit(why: str, patched: Tree | None = None) -> Invalid:
    """Return the error for a patch whose result is not a valid object; the message shows the result."""
    text = "" if patched is None else _json(patched)
    shown = f"{msgspec.json.encode(text).decode()}: " if text else ""
    cause = Cause(reason="FieldValueInvalid", message=f"Invalid value: {shown}{why}", field="patch")
    return invalid("", "", "", [cause])
