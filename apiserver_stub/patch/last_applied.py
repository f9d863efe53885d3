"""The annotation in which `kubectl apply` used to keep what it applied, as far as server-side apply minds it."""

from typing import Any

import orjson

from apiserver_stub.kinds.clean import sweep
from apiserver_stub.kinds.rules.metadata import fit
from apiserver_stub.kinds.schema import Schema
from apiserver_stub.kinds.trees import get_in
from apiserver_stub.patch.field_set import Fields, difference
from apiserver_stub.patch.of_schema import typed
from apiserver_stub.patch.typed import IndistinctError
from apiserver_stub.patch.versions import tracked

Tree = dict[str, Any]

MANAGER = "kubectl"
"""The only manager who takes over from the annotation, and keeps it true; any other name opts out."""
_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


def applied_before(live: Tree, node: Schema) -> Fields:
    """The fields that were applied through the annotation and have kept their values: to take them is no conflict.
    There are none if the annotation holds no object of the same version.
    """
    try:
        before = orjson.loads(get_in(live, ("metadata", "annotations", _ANNOTATION)) or "")
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(before, dict) or before.get("apiVersion") != live["apiVersion"] or sweep(before, node).wrong:
        return {}
    before.setdefault("metadata", {})
    kind = typed(node)
    try:
        declared = kind.declared(before)
    except IndistinctError:
        return {}
    changes = kind.compare(tracked(before), tracked(live))
    return difference(difference(declared, changes.changed or {}), changes.removed or {})


def renewed(tree: Tree, applied: Tree) -> Tree:
    """The object with the annotation, if it has one, as if `applied` had been applied the old way."""
    annotations = get_in(tree, ("metadata", "annotations")) or {}
    if not annotations.get(_ANNOTATION):
        return tree
    metadata = applied["metadata"]
    ours = {name: text for name, text in (metadata.get("annotations") or {}).items() if name != _ANNOTATION}
    said = {**applied, "metadata": {**metadata, "annotations": ours}}
    text = orjson.dumps(said, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE).decode()
    rest = {name: value for name, value in annotations.items() if name != _ANNOTATION}
    whole = {**rest, _ANNOTATION: text}
    return {**tree, "metadata": {**tree["metadata"], "annotations": whole if fit(whole) else rest}}
