"""Where built-in kinds hold bytes, which JSON can only spell in base64; from their schemas."""

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from apiserver_stub.kinds.data import load
from apiserver_stub.kinds.schema import Schema, Schemas

ANY = "*"
"""Stands for every field of a map."""

Places = Mapping[str, "Places | None"]
"""By field, the places within it; None where the field itself is bytes. Lists are passed through."""


@lru_cache(maxsize=512)
def places(api_version: str, kind: str) -> Places:
    """Where objects of a kind hold bytes; empty for nearly all."""
    kinds, schemas = _definitions()
    name = kinds.get(f"{api_version}/{kind}" if "/" in api_version else f"/{api_version}/{kind}")
    return _within(schemas.node(name), frozenset()) if name else {}


def _within(node: Schema, above: frozenset[Schema]) -> Places:
    """A definition that holds itself holds bytes only where it would anyhow."""
    while node.items is not None:
        node = node.items
    if node in above:
        return {}
    children = {**node.fields, **({ANY: node.values} if node.values else {})}
    found: dict[str, Places | None] = {}
    for name, child in children.items():
        if child.type == "bytes":
            found[name] = None
        elif inner := _within(child, above | {node}):
            found[name] = inner
    return found


@cache
def _definitions() -> tuple[Mapping[str, str], Schemas]:
    data: Any = load("schema.json")
    return data["kinds"], Schemas(data["definitions"])
