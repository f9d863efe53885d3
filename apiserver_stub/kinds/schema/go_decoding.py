"""Go's error messages for a value of the wrong type. Clients and tests match their wording."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.kinds.schema.schema import Schema

_PLAIN: Mapping[str, str] = MappingProxyType({
    "string": "string", "boolean": "bool", "number": "float64", "bytes": "[]uint8", "integer": "int64",
})  # fmt: skip
_PYTHON: Mapping[str, tuple[type, ...]] = MappingProxyType({
    "string": (str,), "bytes": (str,), "boolean": (bool,), "integer": (int,), "number": (int, float),
    "array": (list,), "object": (dict,),
})  # fmt: skip


def unmarshal_problem(tree: Any, schema: Schema) -> str:
    """Return Go's decoding error for the first value, in name order, whose type differs from the schema. Empty if all
    fit. Values whose schema leaves the JSON type open are not checked.
    """
    return _problem(tree, schema, schema, ())


def _problem(value: Any, node: Schema, struct: Schema, path: tuple[str, ...]) -> str:
    allowed = _PYTHON.get(node.type)
    if value is None or allowed is None or node.embeds is not None:
        return ""
    if type(value) not in allowed:
        go_field = f"{_short(struct)}.{'.'.join(path)}"
        return f"json: cannot unmarshal {_called(value)} into Go struct field {go_field} of type {_type(node)}"
    if type(value) is list and node.items is not None:
        return next(filter(None, (_problem(each, node.items, struct, path) for each in value)), "")
    if type(value) is dict and node.values is not None:
        values = node.values
        return next(filter(None, (_problem(value[name], values, struct, path) for name in sorted(value))), "")
    if type(value) is dict:
        known = ((name, node.fields[name]) for name in sorted(value) if name in node.fields)
        return next(filter(None, (_problem(value[name], field, node, (*path, name)) for name, field in known)), "")
    return ""


def _called(value: Any) -> str:
    types = {bool: "bool", str: "string", list: "array", dict: "object"}
    return types.get(type(value), "number")


def _short(node: Schema) -> str:
    return node.name.rpartition(".")[2]


def _type(node: Schema) -> str:
    if node.items is not None:
        return f"[]{_type(node.items)}"
    if node.values is not None:
        return f"map[string]{_type(node.values)}"
    if node.type == "integer":
        return node.format or _PLAIN["integer"]
    if node.type in _PLAIN:
        return _PLAIN[node.type]
    return ".".join(node.name.rsplit(".", 2)[-2:])
