"""Warnings of labels of nodes that nobody should select by any more."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.kinds import names
from apiserver_stub.kinds.error_list import FieldPath
from apiserver_stub.kinds.warnings.told import tell

_INSTEAD: Mapping[str, str] = MappingProxyType({
    "beta.kubernetes.io/arch": 'deprecated since v1.14: use "kubernetes.io/arch"',
    "beta.kubernetes.io/os": 'deprecated since v1.14: use "kubernetes.io/os"',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17: use "topology.kubernetes.io/region"',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17: use "topology.kubernetes.io/zone"',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17: use "node.kubernetes.io/instance-type"',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22: use taints and tolerations",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane"',
})  # fmt: skip


def of_label(name: str, at: FieldPath) -> list[str]:
    """A label that has another name today."""
    return [tell(at, f"{name} is {_INSTEAD[name]}")] if name in _INSTEAD else []


def of_labels(labels: Any, at: FieldPath) -> list[str]:
    """The keys of a map of labels."""
    return [text for name in labels or () if name in _INSTEAD for text in of_label(name, (at, f"[{name}]"))]


def of_expressions(expressions: Any, at: FieldPath) -> list[str]:
    """The keys of the requirements of a selector."""
    told = []
    for index, expression in enumerate(expressions or ()):
        told += of_label(expression.get("key", ""), (((at, "matchExpressions"), index), "key"))
    return told


def of_term(term: Any, at: FieldPath, *, preferred: bool = False) -> list[str]:
    """A term of a node selector; only of one that is `preferred` are values looked at that no label can have."""
    told = of_expressions(term.get("matchExpressions"), at)
    for index, expression in enumerate(term.get("matchExpressions") or () if preferred else ()):
        for number, value in enumerate(expression.get("values") or ()):
            if why := names.label_value(value):
                told.append(tell((((((at, "matchExpressions"), index), "values"), number)), why))
    return told


def of_affinity(affinity: Any, at: FieldPath) -> list[str]:
    """What a pod asks of the labels of its node."""
    required, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    told = []
    for index, term in enumerate((affinity.get(required) or {}).get("nodeSelectorTerms") or ()):
        told += of_term(term, (((at, required), "nodeSelectorTerms"), index))
    for index, weighted in enumerate(affinity.get(preferred) or ()):
        told += of_term(weighted.get("preference") or {}, (((at, preferred), index), "preference"), preferred=True)
    return told
