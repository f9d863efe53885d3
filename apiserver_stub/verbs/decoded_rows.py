"""The trees of the objects that were written last: most of them are written again soon, and need not be read then."""

from collections import OrderedDict

from apiserver_stub.kinds.at_rest import read
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.tree import Tree

_LARGEST = 16 * 1024  # bytes of an object whose tree is kept


class DecodedRows:
    """The trees of the `most` rows that were written last through one server, each as it would be read: nobody changes
    them in place.
    """

    def __init__(self, most: int = 256) -> None:
        self.most = most
        self._trees: OrderedDict[Row, Tree] = OrderedDict()

    def __len__(self) -> int:
        return len(self._trees)

    def read(self, kind: ResourceInfo, row: Row) -> Tree:
        """Return the tree of a row in the version of a kind; all but its top level may be others', too."""
        tree = self._trees.get(row) if kind.is_read_as_written else None
        return read(kind, row.data) if tree is None else tree.copy()

    def replace(self, row: Row | None, kind: ResourceInfo, written: Row, tree: Tree) -> None:
        """Keep what was written in the place of a row, or anew; the top level of the tree is nobody else's."""
        trees = self._trees
        if row is not None:
            trees.pop(row, None)
        if not kind.is_read_as_written or written.size > _LARGEST:
            return
        tree["metadata"] = {**tree["metadata"], "resourceVersion": str(written.revision)}
        trees[written] = tree
        if len(trees) > self.most:
            trees.popitem(last=False)

    def forget(self, row: Row) -> None:
        """Keep nothing of a row whose object is gone."""
        self._trees.pop(row, None)
