"""The fields that a pod gets from its runtime class."""

from typing import Any

import pytest

from apiserver_stub.admission.plugins.pods import with_class
from tests.apiserver_stub.api_client import ApiClient
from tests.apiserver_stub.running_server import Started

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
PODS = "/api/v1/namespaces/default/pods"
TOLERATED = {"key": "k", "operator": "Exists"}
CLASS: dict[str, Any] = {
    "metadata": {"name": "boxed"},
    "handler": "box",
    "overhead": {"podFixed": {"cpu": "100m"}},
    "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [TOLERATED]},
}


@pytest.mark.parametrize(
    "own",
    [{}, {"overhead": {"cpu": "0.1"}}, {"nodeSelector": {"a": "b"}, "tolerations": [TOLERATED]}],
)
def test_pod_gets_the_fields_of_its_class(own: dict[str, Any]) -> None:
    spec = with_class(own, CLASS)
    assert spec == {"overhead": {"cpu": "100m"}, "nodeSelector": {"a": "b"}, "tolerations": [TOLERATED]}


def test_other_pod_fields_are_unchanged() -> None:
    spec = with_class({"nodeSelector": {"c": "d"}, "tolerations": [{"key": "own"}]}, CLASS)
    assert spec["nodeSelector"] == {"a": "b", "c": "d"}
    assert spec["tolerations"] == [{"key": "own"}, TOLERATED]
    assert with_class({"nodeName": "n"}, {}) == {"nodeName": "n"}


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"overhead": {"cpu": "1"}}, "Overhead doesn't match"),
        ({"nodeSelector": {"a": "c"}}, r"nodeSelector\[a\] = b; pod.spec.nodeSelector\[a\] = c"),
    ],
)
def test_conflicting_pod_is_rejected(own: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        with_class(own, CLASS)


async def create_pod(api: ApiClient, name: str, **spec: Any) -> Any:
    pod = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
    return await api.post(PODS, pod)


async def test_server_applies_runtime_class_to_new_pods(started: Started) -> None:
    async with started() as api:
        assert (await create_pod(api, "early", runtimeClassName="boxed")).status == 403
        assert (await api.post(CLASSES, CLASS)).status == 201
        spec = (await create_pod(api, "boxed", runtimeClassName="boxed")).tree["spec"]
        assert (spec["overhead"], spec["nodeSelector"]) == ({"cpu": "100m"}, {"a": "b"})
        assert TOLERATED in spec["tolerations"]
        assert (await create_pod(api, "other", runtimeClassName="boxed", nodeSelector={"a": "c"})).status == 403
        assert (await create_pod(api, "heavy", overhead={"cpu": "1"})).status == 403
