"""Validation of tolerations. Numeric comparisons are rejected while their feature is disabled (KEP-5471)."""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import KindRules, each, record
from apiserver_stub.kinds.rules.features import POD_SPECS, Path, without_feature
from apiserver_stub.kinds.rules.formats import QUALIFIED
from apiserver_stub.kinds.rules.selectors import EFFECT
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.tree import Tree

_EQUAL, _COMPARING = ("Equal", "Exists"), ("Lt", "Gt")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_GREATEST = 2**63
POD_TOLERATIONS: Mapping[str, Path] = MappingProxyType({
    name: (*path, "tolerations") for name, path in POD_SPECS.items()
})  # fmt: skip
"""The path of the tolerations of pods by `plural.group`."""


def _toleration(toleration: Any, at: FieldPath, errors: ErrorList) -> None:
    operator, value, effect = (toleration.get(name, "") for name in ("operator", "value", "effect"))
    if not toleration.get("key") and operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.invalid((at, "operator"), operator, why)
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        errors.invalid((at, "effect"), effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
    if operator == "Exists" and value:
        errors.invalid((at, "operator"), value, "value must be empty when `operator` is 'Exists'")
    elif operator in ("", "Equal") and (why := names.label_value(value)):
        errors.malformed((at, "operator"), value, why)
    elif operator in _COMPARING:
        _number(value, (at, "value"), errors)
    elif operator not in ("", *_EQUAL):
        errors.unsupported((at, "operator"), operator, _EQUAL)


def _number(value: str, at: FieldPath, errors: ErrorList) -> None:
    if not _INTEGER.fullmatch(value) or value == "-0":
        errors.invalid(at, value, "must be a decimal integer, without zeros before it")
    elif not -_GREATEST <= int(value) < _GREATEST:
        errors.invalid(at, value, "must be an integer of 64 bits")


TOLERATIONS = each(record({"key": QUALIFIED, "effect": EFFECT}, _toleration))


def without_comparisons(rules: KindRules, path: Path) -> KindRules:
    """Return rules that reject numeric comparisons in tolerations at a path, unless the stored object has one."""
    return without_feature(
        rules,
        path[0],
        lambda tree, errors: _refuse_comparing(tree, path, errors),
        lambda old: next(_comparing(old, path), None) is not None,
    )


def _refuse_comparing(tree: Tree, path: tuple[str, ...], errors: ErrorList) -> None:
    for index, operator in _comparing(tree, path):
        at: FieldPath = None
        for name in path:
            at = (at, name)
        # Numeric operators need a disabled feature, but messages list them as Kubernetes does.
        errors.unsupported(((at, index), "operator"), operator, (*_EQUAL, *_COMPARING))


def _comparing(tree: Tree, path: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield the indexes and operators of tolerations with numeric operators."""
    for index, toleration in enumerate(get_in(tree, path) or ()):
        if (operator := toleration.get("operator")) in _COMPARING:
            yield index, operator
