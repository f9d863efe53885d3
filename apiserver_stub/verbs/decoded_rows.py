"""A cache of decoded objects that were written last. Most of them are written again soon and need no decoding then."""

from collections import OrderedDict

from apiserver_stub.kinds.at_rest import read
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.tree import Tree

LARGEST = 16 * 1024
"""Bytes of the largest object whose tree is kept."""


class DecodedRows:
    """LRU cache of the decoded trees of the `most` rows written last. Cached trees are never changed in place."""

    def __init__(self, most: int = 256) -> None:
        self.most = most
        self._trees: OrderedDict[Row, Tree] = OrderedDict()

    def __len__(self) -> int:
        return len(self._trees)

    def read(self, kind: ResourceInfo, row: Row) -> Tree:
        """Return the tree of a row in the kind's version. The caller owns only the top level; everything below is
        shared.
        """
        tree = self._trees.get(row) if kind.is_read_as_written else None
        return read(kind, row.data) if tree is None else tree.copy()

    def replace(self, row: Row | None, kind: ResourceInfo, written: Row, tree: Tree) -> None:
        """Replace the cached tree of a row, or add a new one. The cache takes over the top level of `tree`."""
        trees = self._trees
        if row is not None:
            trees.pop(row, None)
        if not kind.is_read_as_written or written.size > LARGEST:
            return
        tree["metadata"] = {**tree["metadata"], "resourceVersion": str(written.revision)}
        trees[written] = tree
        if len(trees) > self.most:
            trees.popitem(last=False)

    def forget(self, row: Row) -> None:
        """Drop the tree of a deleted object."""
        self._trees.pop(row, None)
