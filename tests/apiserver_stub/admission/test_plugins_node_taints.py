"""Taints of a new node, as recorded from kube-apiserver 1.36."""

from typing import Any

import pytest

from apiserver_stub.admission import Admission, Attributes
from apiserver_stub.kinds.registry import built_in
from controller_manager.common.serving.authentication import User

KINDS = {kind.storage: kind for kind in built_in().all()}
READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
OTHER = {"key": "example.org/gpu", "effect": "NoSchedule"}


@pytest.fixture
def admitted(admission: Admission) -> Any:
    """Run the plugin on a write; return the taints of the object."""

    async def ask(tree: dict[str, Any], kind: str = "nodes", operation: Any = "create", subresource: str = "") -> Any:
        user = User(name="alice")
        await admission.mutate(Attributes(operation, KINDS[kind], "default", "n", subresource, tree, {}, user))
        return tree.get("spec", {}).get("taints")

    return ask


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
async def test_new_node_gets_each_taint_once(admitted, own: list[dict[str, Any]], added: list[dict[str, Any]]) -> None:
    assert await admitted({"spec": {"taints": [*own]}}) == [*own, *added]


async def test_ready_node_gets_the_not_ready_taint(admitted) -> None:
    assert await admitted({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}) == [READY]


async def test_shared_spec_is_not_modified(admitted) -> None:
    shared: dict[str, Any] = {"providerID": "p"}
    assert await admitted({"spec": shared}) == [READY]
    assert shared == {"providerID": "p"}


async def test_other_requests_are_not_modified(admitted) -> None:
    assert await admitted({"spec": {}}, operation="update") is None
    assert await admitted({"spec": {}}, operation="delete") is None
    assert await admitted({"spec": {}}, subresource="status") is None
    assert await admitted({"spec": {}}, kind="pods") is None
