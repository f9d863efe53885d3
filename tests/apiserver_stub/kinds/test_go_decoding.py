"""Error messages of Go decoders for values of the wrong type."""

from typing import Any

import pytest

from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.schema.go_decoding import unmarshal_problem

KINDS = built_in()


@pytest.mark.parametrize(
    ("plural", "tree", "problem"),
    [
        ("configmaps", {"data": "str"}, "string into Go struct field ConfigMap.data of type map[string]string"),
        ("configmaps", {"data": {"a": 1}}, "number into Go struct field ConfigMap.data of type string"),
        ("configmaps", {"immutable": "x"}, "string into Go struct field ConfigMap.immutable of type bool"),
        ("pods", {"spec": []}, "array into Go struct field Pod.spec of type v1.PodSpec"),
        (
            "pods",
            {"spec": {"containers": {}}},
            "object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            "pods",
            {"spec": {"containers": [{"name": True}]}},
            "bool into Go struct field Container.spec.containers.name of type string",
        ),
        ("pods", {"spec": {"priority": "1"}}, "string into Go struct field PodSpec.spec.priority of type int32"),
        (
            "pods",
            {"metadata": {"labels": []}, "spec": []},
            "array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        ),
    ],
)
def test_wrong_type_is_reported_like_go(plural: str, tree: Any, problem: str) -> None:
    info = KINDS.find("", "v1", plural)
    assert info is not None
    assert unmarshal_problem(tree, info.schema) == f"json: cannot unmarshal {problem}"


def test_valid_or_untyped_values_have_no_problem() -> None:
    info = KINDS.find("", "v1", "pods")
    assert info is not None
    limits = {"cpu": 1, "memory": "1Gi"}
    tree = {"metadata": {"labels": None}, "spec": {"containers": [{"resources": {"limits": limits}}]}, "odd": 1}
    assert unmarshal_problem(tree, info.schema) == ""
