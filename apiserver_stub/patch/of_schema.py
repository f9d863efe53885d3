"""The type of values that a schema describes, as server-side apply sees it."""

from functools import lru_cache

from apiserver_stub.kinds.schema import ANYTHING, Node
from apiserver_stub.patch.typed import ONE, Typed
from apiserver_stub.patch.typed_lists import Distinct, Keyed
from apiserver_stub.patch.typed_objects import Entries, Struct


@lru_cache(maxsize=1 << 14)
def typed(node: Node) -> Typed:
    """The type of the values of a schema: what it does not call a set or a keyed list is an atomic list, what it does
    not call atomic is granular, and what it does not describe is one value.
    """
    if node.type == "array":
        return _list(node)
    if node.type != "object" or node.map_type == "atomic":
        return ONE
    return Struct(node, typed) if node.values is None else Entries(typed(node.values))


def _list(node: Node) -> Typed:
    match node.list_type:
        case "map" if node.list_map_keys:
            return Keyed(node.items or ANYTHING, node.list_map_keys, typed)
        case "set":
            return Distinct()
    return ONE
