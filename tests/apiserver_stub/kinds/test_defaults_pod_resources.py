"""Default requests of pods and containers that set only limits."""

import copy
from typing import Any

import pytest

from apiserver_stub.kinds.defaults.pods import complete_resources, total


def _container(requests: Any = None, limits: Any = None, **more: Any) -> dict[str, Any]:
    resources = {"requests": requests, "limits": limits}
    return {"name": "c", "resources": {name: value for name, value in resources.items() if value}, **more}


def test_requests_default_to_limits() -> None:
    spec = {
        "containers": [_container({"cpu": "100m"}, {"cpu": "1", "memory": "1Gi"}), _container(), {"name": "d"}],
        "initContainers": [_container(None, {"cpu": "2"})],
    }
    complete_resources(spec)
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "100m", "memory": "1Gi"}
    assert spec["containers"][1:] == [_container(), {"name": "d"}]
    assert spec["initContainers"][0]["resources"]["requests"] == {"cpu": "2"}
    assert "resources" not in spec


@pytest.mark.parametrize(
    ("given", "resources"),
    [
        ({"limits": {"cpu": "2", "memory": "1Gi"}},
         {"limits": {"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "4Mi"},
          "requests": {"cpu": "1500m", "memory": "1Gi", "hugepages-2Mi": "4Mi"}}),
        ({"limits": {"cpu": "2"}, "requests": {"cpu": "1800m", "hugepages-2Mi": "2Mi"}},
         {"limits": {"cpu": "2"}, "requests": {"cpu": "1800m", "hugepages-2Mi": "2Mi"}}),
    ],
)  # fmt: skip
def test_pod_level_requests_default_to_containers_or_limits(given: Any, resources: Any) -> None:
    """KEP-2837, defaulting."""
    pages = {"hugepages-2Mi": "4Mi"}
    spec = {
        "containers": [_container({"cpu": "500m", **pages}, pages), _container({"cpu": "1"})],
        "resources": copy.deepcopy(given),
    }
    complete_resources(spec)
    once = copy.deepcopy(spec)
    assert spec["resources"] == resources
    complete_resources(spec)
    assert spec == once


@pytest.mark.parametrize(
    ("init", "containers", "cpu"),
    [
        ((), ("1", "500m"), "1500m"),
        ((("3", False),), ("1", "500m"), "3"),
        ((("3", False), ("2", False)), ("1",), "3"),
        ((("1", True),), ("1",), "2"),
        ((("1", True), ("3", False)), ("2",), "4"),
        ((("3", False), ("1", True)), ("2",), "3"),
        ((("1", True), ("1", True)), ("1",), "3"),
    ],
)
def test_sidecar_requests_add_to_later_containers(init: Any, containers: Any, cpu: str) -> None:
    """KEP-753, resources calculation."""
    always = {True: {"restartPolicy": "Always"}, False: {}}
    spec = {
        "initContainers": [_container({"cpu": amount}, **always[sidecar]) for amount, sidecar in init],
        "containers": [_container({"cpu": amount}) for amount in containers],
    }
    assert total(spec, "requests") == {"cpu": cpu}
