"""Specs that came before when configurations were applied: which fields one declares, and what it is once it fits its
schema and has its defaults, follows from its content alone. Appliers send the same again and again.
"""

from functools import lru_cache
from typing import Any

import msgspec
import orjson

from apiserver_stub.kinds.defaults import apply_defaults
from apiserver_stub.kinds.fit import fit_tree
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema import Schema
from apiserver_stub.kinds.trees import deep_copy
from apiserver_stub.patch.field_set import Fields
from apiserver_stub.patch.typed_objects import type_of

Tree = dict[str, Any]

_MOST = 256  # specs
_LONGEST = 16 * 1024  # bytes of one
_STEP = "f:spec"
_ENCODER = msgspec.json.Encoder()


class AppliedSpec:
    """A spec that came before: the fields that it `declared`, and what it is in JSON when it is `completed`, once that
    is known.
    """

    __slots__ = ("completed", "declared")

    def __init__(self) -> None:
        self.declared: Fields = {}
        self.completed = b""


@lru_cache(_MOST)
def _known(_schema: Schema, _spec: bytes) -> AppliedSpec:
    return AppliedSpec()


def _find(tree: Tree, kind: ResourceInfo) -> AppliedSpec | None:
    """Return what is known of the spec of an object; None if it is none that is remembered."""
    spec = tree.get("spec")
    if kind.beside_spec is None or type(spec) is not dict:
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


def completed(tree: Tree, kind: ResourceInfo) -> Tree:
    """Return an object that fits its schema and has its defaults: one to change at will, all but its managed fields,
    which are never changed in place.
    """
    known, beside_spec = _find(tree, kind), kind.beside_spec
    if known is not None and known.completed and beside_spec is not None:
        own = _own({**tree, "spec": {}})
        fit_tree(own, kind.schema)
        beside_spec(own)
        own["spec"] = orjson.loads(known.completed)
        return own
    own = _own(tree)
    report = fit_tree(own, kind.schema)
    apply_defaults(own, kind)  # which may fold what was applied into what was there
    if known is not None and not report.wrong and not report.unknown and "spec" in own:
        known.completed = _ENCODER.encode(own["spec"])
    return own


def _own(tree: Tree) -> Tree:
    """Return a copy to change at will, all but its managed fields."""
    metadata = dict(tree["metadata"])
    entries = metadata.pop("managedFields", None)
    copy: Tree = deep_copy({**tree, "metadata": metadata})
    if entries is not None:
        copy["metadata"]["managedFields"] = entries
    return copy
