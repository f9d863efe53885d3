"""The default tolerations of a pod."""

from dataclasses import replace
from typing import Any

import pytest

from apiserver_stub.admission import Admission, AdmissionParts, Attributes
from apiserver_stub.admission.plugins.pods import default_toleration_seconds
from apiserver_stub.common.flags import FLAGS
from apiserver_stub.kinds.registry import built_in
from controller_manager.common.serving.authentication import User

READY, REACH = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
KINDS = {kind.storage: kind for kind in built_in().all()}
Tolerations = list[dict[str, Any]]


def toleration(sign: str) -> dict[str, Any]:
    return {"key": sign, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


@pytest.fixture
def admitted(admission: Admission) -> Any:
    """Run the plugin on a write; return the tolerations of the object."""

    async def ask(tree: dict[str, Any], kind: str = "pods", operation: Any = "create", subresource: str = "") -> Any:
        user = User(name="alice")
        await admission.mutate(Attributes(operation, KINDS[kind], "default", "p", subresource, tree, {}, user))
        return tree.get("spec", {}).get("tolerations")

    return ask


@pytest.mark.parametrize(
    ("own", "added"),
    [
        ([], [READY, REACH]),
        ([{"key": "k", "operator": "Exists"}], [READY, REACH]),
        ([{"key": READY, "operator": "Exists", "effect": "NoSchedule"}], [READY, REACH]),
        ([{"key": READY, "operator": "Exists", "effect": "NoExecute"}], [REACH]),
        ([{"key": REACH, "operator": "Exists", "tolerationSeconds": 5, "effect": "NoExecute"}], [READY]),
        ([{"key": REACH, "operator": "Exists"}], [READY]),
        ([{"operator": "Exists"}], []),
        ([{"operator": "Exists", "effect": "NoExecute"}], []),
        ([{"operator": "Exists", "effect": "NoSchedule"}], [READY, REACH]),
    ],
)
async def test_missing_tolerations_are_added(admitted, own: Tolerations, added: list[str]) -> None:
    expected = [*own, *map(toleration, added)]
    for operation in ("create", "update"):
        assert await admitted({"spec": {"tolerations": [*own]}}, operation=operation) == expected


async def test_shared_spec_is_not_modified(admitted) -> None:
    shared: dict[str, Any] = {"nodeName": "n"}
    tree = {"spec": shared}
    assert await admitted(tree) == [toleration(READY), toleration(REACH)]
    assert shared == {"nodeName": "n"}


async def test_other_requests_are_not_modified(admitted) -> None:
    assert await admitted({"spec": {}}, kind="services") is None
    assert await admitted({"spec": {}}, operation="delete") is None
    assert await admitted({"spec": {}}, subresource="status") is None


async def test_flags_set_toleration_seconds(parts: AdmissionParts) -> None:
    flags = ["--default-not-ready-toleration-seconds=30", "--default-unreachable-toleration-seconds=-1"]
    admission = Admission([default_toleration_seconds(replace(parts, options=FLAGS.parse(flags)))])
    tree: dict[str, Any] = {"spec": {}}
    await admission.mutate(Attributes("create", KINDS["pods"], "default", "p", "", tree, None, User(name="alice")))
    assert [each["tolerationSeconds"] for each in tree["spec"]["tolerations"]] == [30, -1]
