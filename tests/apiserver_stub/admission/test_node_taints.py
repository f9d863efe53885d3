"""Which taint a new node is given, as a real API server (1.36) gave it."""

from typing import Any

import pytest

from apiserver_stub.admission.chain import AdmissionRequest
from apiserver_stub.admission.node_taints import taint_new_node
from apiserver_stub.call import User
from apiserver_stub.kinds.registry import built_in

KINDS = {kind.storage: kind for kind in built_in().all()}
READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
OTHER = {"key": "example.org/gpu", "effect": "NoSchedule"}


def admitted(tree: dict[str, Any], kind: str = "nodes", operation: Any = "create", subresource: str = "") -> Any:
    user = User(name="somebody")
    taint_new_node(AdmissionRequest(operation, KINDS[kind], "", "n", subresource, tree, None, user, False))
    return tree.get("spec", {}).get("taints")


@pytest.mark.parametrize(
    ("own", "added"),
    [
        ([], [READY]),
        ([OTHER], [READY]),
        ([{**READY, "effect": "NoExecute"}], [READY]),
        ([READY], []),
        ([{**READY, "value": "x"}], []),
    ],
)
def test_a_new_node_is_tainted_once(own: list[dict[str, Any]], added: list[dict[str, Any]]) -> None:
    assert admitted({"spec": {"taints": [*own]}}) == [*own, *added]


def test_a_node_may_say_nothing_of_itself_but_that_it_is_ready() -> None:
    assert admitted({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}) == [READY]


def test_a_spec_that_others_share_stays_as_it_is() -> None:
    shared: dict[str, Any] = {"providerID": "p"}
    assert admitted({"spec": shared}) == [READY]
    assert shared == {"providerID": "p"}


def test_nothing_else_is_touched() -> None:
    assert admitted({"spec": {}}, operation="update") is None
    assert admitted({"spec": {}}, operation="delete") is None
    assert admitted({"spec": {}}, subresource="status") is None
    assert admitted({"spec": {}}, kind="pods") is None
