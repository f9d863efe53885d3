"""Paths that definitions give as text (`.spec.items['a.b']`): `fieldPath` of validation rules, selectable fields."""

import re
from collections.abc import Iterator

from apiserver_stub.common.error_list import FieldPath, key
from controller_manager.common.api.tree import Tree

_TOKENS = re.compile(r"[.\[\]]|'.*?(?<!\\)'|'.*|[^.\[\]]+", re.DOTALL)
_ESCAPES = re.compile(r"\\.", re.DOTALL)
_ESCAPED = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\",
}  # fmt: skip
_NOWHERE = "does not refer to a valid field"
_ENDS = "unexpected end of JSON path"


def resolve_path(path: str, schema: Tree, *, brackets: bool = True) -> tuple[FieldPath, Tree]:
    """Return the field path as causes show it, and the schema of the field.

    Raises ValueError for a path that does not exist in the schema, and for brackets unless they are allowed.
    """
    at: FieldPath = None
    parts = _split(path)
    for part in parts:
        if part == ".":
            name = _next(parts)
        elif part == "[" and brackets:
            name = _quoted(_next(parts))
        elif part == "[":
            raise ValueError("array notation is not allowed")
        else:
            raise ValueError(f"expected [ or . but got: {part}")
        at, schema = _step(at, schema, name)
        if part == "[" and (end := _next(parts)) != "]":
            raise ValueError(f"expected ] but got {end}")
    return at, schema


def _split(path: str) -> Iterator[str]:
    return (found.group() for found in _TOKENS.finditer(path))


def _next(parts: Iterator[str]) -> str:
    part = next(parts, None)
    if part is None:
        raise ValueError(_ENDS)
    return part


def _step(at: FieldPath, schema: Tree, name: str) -> tuple[FieldPath, Tree]:
    properties, more = schema.get("properties"), schema.get("additionalProperties")
    if properties:
        if name not in properties:
            raise ValueError(_NOWHERE)
        return (at, name), properties[name]
    if more is None:
        raise ValueError(_NOWHERE)
    return (at, key(name)), more if isinstance(more, dict) else {}


def _quoted(part: str) -> str:
    if len(part) < 2 or part[0] != "'" or part[-1] != "'":
        raise ValueError(f"expected single quoted string but got {part}")
    return _ESCAPES.sub(_unescaped, part[1:-1])


def _unescaped(found: re.Match[str]) -> str:
    escape = found.group()
    if escape[1:] not in _ESCAPED:
        raise ValueError(f"invalid string literal: invalid escape char {escape}")
    return _ESCAPED[escape[1:]]
