"""An object changed by a patch document (document 1, Update operations)."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from apiserver_stub.call import Call, Reply, Tree
from apiserver_stub.encode.body import (
    JSON_PATCH,
    MERGE_PATCH,
    PATCHES,
    STRATEGIC_MERGE_PATCH,
    Body,
    media_type,
    unsupported,
)
from apiserver_stub.encode.json import check_depth, decode_noting
from apiserver_stub.kinds.schema import Node
from apiserver_stub.patch import json_patch, merge, strategic
from apiserver_stub.verbs.apply import apply, check_options, is_apply
from apiserver_stub.verbs.incoming import Warnings, fit
from apiserver_stub.verbs.modify import Fresh
from apiserver_stub.verbs.revise import revise
from apiserver_stub.verbs.tools import Tools
from controller_manager.api.errors import BadRequest


def _apply_operations(tree: Tree, document: Any, _node: Node) -> Tree:
    patched = json_patch.apply(tree, document)
    check_depth(patched)  # the others can't get deeper than the tree or the patch is
    return patched


_APPLY: Mapping[str, Callable[[Tree, Any, Node], Tree]] = MappingProxyType({
    JSON_PATCH: _apply_operations,
    MERGE_PATCH: lambda tree, document, _node: merge.apply(tree, document),
    STRATEGIC_MERGE_PATCH: strategic.apply,
})  # fmt: skip


class Patch:
    """The patch document of a call, decoded once. Raises `BadRequest` or `UnsupportedMediaType`."""

    def __init__(self, call: Call) -> None:
        found = _APPLY.get(media_type(call.request))
        if found is None:
            raise unsupported(PATCHES)
        self._apply = found
        self._document, self.duplicates = decode_noting(call.request.body)

    def apply(self, tree: Tree, node: Node) -> Tree:
        """The patched tree, which shares with `tree` what it left alone."""
        return self._apply(tree, self._document, node)


async def patch(tools: Tools, call: Call) -> Reply:
    """The patched object; unchanged, with the version it had, when the patch changes nothing."""
    check_options(call)
    if is_apply(call):
        return await apply(tools, call)
    kind, document = call.kind, await tools.run_of(call.request)(partial(Patch, call))

    def edit(fresh: Fresh) -> tuple[Tree, Warnings]:
        tree = document.apply(fresh(), kind.schema)
        check_patched(tree, kind.api_version, kind.kind)
        return tree, fit(call, Body(tree, document.duplicates), kind.schema, kind.kind)

    return await revise(tools, call, edit)


def check_patched(tree: Tree, api_version: str, kind: str) -> None:
    """No patch makes an object one of another kind, or takes its metadata away."""
    if (tree.get("apiVersion"), tree.get("kind")) != (api_version, kind):
        raise BadRequest("a patch must leave apiVersion and kind as they are")
    if not isinstance(tree.get("metadata"), dict):
        raise BadRequest("a patch must leave the metadata an object")
