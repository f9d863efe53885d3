"""Tolerations that compare numbers: validation with the feature on, and use with the feature off."""

import copy
from typing import Any

import pytest

from apiserver_stub.common.flags.features import TOLERATION_COMPARISON
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.rules.tolerations import POD_TOLERATIONS
from apiserver_stub.kinds.validate import validate
from apiserver_stub.kinds.values.trees import get_in, put_in

COMPARES = {"key": "load", "operator": "Gt", "value": "5"}
EQUALS = {"key": "load", "operator": "Equal", "value": "5"}
BOTH = (built_in(), built_in(enabled=lambda feature: feature != TOLERATION_COMPARISON))
ON, OFF = ({f"{kind.plural}.{kind.group}".rstrip("."): kind for kind in one.all()} for one in BOTH)
UNSUPPORTED = 'Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt"'


def tree(kind: str, *tolerations: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"metadata": {"name": "one", "namespace": "default"}}
    put_in(found, POD_TOLERATIONS[kind], list(tolerations))
    return found


def causes_of(kinds: Any, kind: str, new: Any, old: Any = None) -> list[tuple[str, str]]:
    """Return fields and messages of the causes about tolerations."""
    causes = validate(kinds[kind], copy.deepcopy(new), old)
    return [(cause.field, cause.message) for cause in causes if "tolerations" in cause.field]


@pytest.mark.parametrize("kind", POD_TOLERATIONS)
def test_comparison_operators_need_feature_or_stored_use(kind: str) -> None:
    field = ".".join(POD_TOLERATIONS[kind]) + "[1].operator"
    compares, equals = tree(kind, EQUALS, COMPARES), tree(kind, EQUALS)
    assert causes_of(ON, kind, compares) == []
    assert causes_of(OFF, kind, compares) == [(field, UNSUPPORTED)]
    assert causes_of(OFF, kind, equals) == []
    if kind != "pods":  # whose tolerations can only be added to
        assert causes_of(OFF, kind, compares, equals) == [(field, UNSUPPORTED)]
    assert causes_of(OFF, kind, compares, tree(kind, COMPARES)) == causes_of(ON, kind, compares, tree(kind, COMPARES))
    assert get_in(compares, POD_TOLERATIONS[kind])[1] == COMPARES


@pytest.mark.parametrize(
    ("value", "good"),
    [
        *((text, True) for text in ("0", "7", "-7", str(2**63 - 1), str(-(2**63)))),
        *((text, False) for text in ("", "-0", "07", "+7", "7.0", "1e3", "a", str(2**63), str(-(2**63) - 1))),
    ],
)
def test_compared_value_must_be_int64(value: str, good: bool) -> None:
    found = causes_of(ON, "pods", tree("pods", COMPARES | {"value": value}))
    assert [field for field, _ in found] == ([] if good else ["spec.tolerations[0].value"])
