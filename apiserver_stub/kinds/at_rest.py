"""Objects as they are stored, read as trees of the version of a kind."""

import orjson

from apiserver_stub.kinds.resource_info import ResourceInfo
from controller_manager.common.api.tree import Tree


def is_stored_as_served(kind: ResourceInfo) -> bool:
    """Return whether rows of a kind are answered as they are. Those of a kind with a converter are, once that has
    converted them.
    """
    return kind.from_storage is None or kind.converter is not None


def read(kind: ResourceInfo, data: bytes) -> Tree:
    """Return a fresh tree of an object at rest, in the kind's own version; of a kind with a converter, in whatever
    version it was stored.
    """
    tree: Tree = orjson.loads(data)
    if is_stored_as_served(kind):
        if kind.complete is not None:
            kind.complete(tree)
        return tree
    assert kind.from_storage is not None
    return kind.from_storage(tree)
