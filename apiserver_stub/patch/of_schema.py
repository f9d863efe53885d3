"""The type of values that a schema describes, as server-side apply sees it."""

from functools import lru_cache

from apiserver_stub.kinds.schema import ANYTHING, Schema
from apiserver_stub.patch.typed import ATOMIC, Typed
from apiserver_stub.patch.typed_lists import ListMap, Set
from apiserver_stub.patch.typed_objects import Map, Struct


@lru_cache(maxsize=1 << 14)
def typed(node: Schema) -> Typed:
    """The type of the values of a schema: what it does not call a set or a keyed list is an atomic list, what it does
    not call atomic is granular, and what it does not describe is one value.
    """
    if node.type == "array":
        return _list(node)
    if node.type != "object" or node.map_type == "atomic":
        return ATOMIC
    return Struct(node, typed) if node.values is None else Map(typed(node.values))


def _list(node: Schema) -> Typed:
    match node.list_type:
        case "map" if node.list_map_keys:
            return ListMap(node.items or ANYTHING, node.list_map_keys, typed)
        case "set":
            return Set()
    return ATOMIC
