"""Decode stored objects into trees of the served version."""

import orjson

from apiserver_stub.kinds.resource_info import ResourceInfo
from controller_manager.common.api.tree import Tree


def is_stored_as_served(kind: ResourceInfo) -> bool:
    """Return whether stored rows are answered unchanged. Rows of a kind with a converter are, after the conversion."""
    return kind.from_storage is None or kind.converter is not None


def read(kind: ResourceInfo, data: bytes) -> Tree:
    """Return a new tree of a stored object in the kind's own version. For a kind with a converter it keeps its stored
    version.
    """
    tree: Tree = orjson.loads(data)
    if is_stored_as_served(kind):
        if kind.complete is not None:
            kind.complete(tree)
        return tree
    assert kind.from_storage is not None
    return kind.from_storage(tree)
