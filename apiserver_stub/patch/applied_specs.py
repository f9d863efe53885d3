"""Specs that came before when configurations were applied: appliers send the same again and again, and which fields one
declares follows from its content alone.
"""

from functools import lru_cache
from typing import Any

import msgspec

from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema import Schema
from apiserver_stub.patch.field_set import Fields
from apiserver_stub.patch.typed_objects import type_of

Tree = dict[str, Any]

_MOST = 256  # specs
_LONGEST = 16 * 1024  # bytes of one
_STEP = "f:spec"
_ENCODER = msgspec.json.Encoder()


class AppliedSpec:
    """A spec that came before: the fields that it `declared`, once that is known."""

    __slots__ = ("declared",)

    def __init__(self) -> None:
        self.declared: Fields = {}


@lru_cache(_MOST)
def _known(_schema: Schema, _spec: bytes) -> AppliedSpec:
    return AppliedSpec()


def _find(tree: Tree, kind: ResourceInfo) -> AppliedSpec | None:
    """Return what is known of the spec of an object; None if it is none that is remembered."""
    spec = tree.get("spec")
    if "spec" not in (kind.part_defaults or ()) or type(spec) is not dict:
        return None
    data = _ENCODER.encode(spec)
    return _known(kind.schema, data) if len(data) <= _LONGEST else None


def declared(config: Tree, kind: ResourceInfo) -> Fields:
    """Return the fields that a configuration declares, in order. Raises `IndistinctError`."""
    known, typed = _find(config, kind), type_of(kind.schema)
    if known is None:
        return typed.declared(config)
    if known.declared:
        beside = typed.declared({name: value for name, value in config.items() if name != "spec"})
        found = {**beside, _STEP: known.declared}
        return {step: found[step] for step in sorted(found)}
    found = typed.declared(config)
    known.declared = found.get(_STEP) or {}
    return found
