"""Objects that kube-apiserver 1.36 has created by the time it is ready, as recorded."""

from typing import Any

import pytest

from apiserver_stub.kinds.strategies.api_services import priority_of

FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
TRACKING = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking"

LEVELS = [
    ("catch-all", "Limited", 5, None),
    ("exempt", "Exempt", 0, None),
    ("global-default", "Limited", 20, (128, 6, 50)),
    ("leader-election", "Limited", 10, (16, 4, 50)),
    ("node-high", "Limited", 40, (64, 6, 50)),
    ("system", "Limited", 30, (64, 6, 50)),
    ("workload-high", "Limited", 40, (128, 6, 50)),
    ("workload-low", "Limited", 100, (128, 6, 50)),
]
SCHEMAS = [
    ("catch-all", "catch-all", 10000, "ByUser"),
    ("exempt", "exempt", 1, None),
    ("global-default", "global-default", 9900, "ByUser"),
    ("kube-controller-manager", "workload-high", 800, "ByNamespace"),
    ("kube-scheduler", "workload-high", 800, "ByNamespace"),
    ("kube-system-service-accounts", "workload-high", 900, "ByNamespace"),
    ("probes", "exempt", 2, None),
    ("service-accounts", "workload-low", 9000, "ByUser"),
    ("system-leader-election", "leader-election", 100, "ByUser"),
    ("system-node-high", "node-high", 400, "ByUser"),
    ("system-nodes", "system", 500, "ByUser"),
]
API_SERVICES = {
    "v1.": 18000,
    "v1.admissionregistration.k8s.io": 16700,
    "v1.apiextensions.k8s.io": 16700,
    "v1.apps": 17800,
    "v1.authentication.k8s.io": 17700,
    "v1.authorization.k8s.io": 17600,
    "v1.autoscaling": 17500,
    "v1.batch": 17400,
    "v1.certificates.k8s.io": 17300,
    "v1.coordination.k8s.io": 16500,
    "v1.discovery.k8s.io": 16200,
    "v1.events.k8s.io": 17750,
    "v1.flowcontrol.apiserver.k8s.io": 16100,
    "v1.networking.k8s.io": 17200,
    "v1.node.k8s.io": 16300,
    "v1.policy": 17100,
    "v1.rbac.authorization.k8s.io": 17000,
    "v1.resource.k8s.io": 16200,
    "v1.scheduling.k8s.io": 16600,
    "v1.storage.k8s.io": 16800,
    "v2.autoscaling": 17500,
}


async def items(api: Any, path: str) -> list[Any]:
    found = await api.get(path)
    assert found.status == 200
    return sorted(found.tree["items"], key=lambda each: each["metadata"]["name"])


def queues(limited: Any) -> tuple[int, int, int] | None:
    queuing = limited["limitResponse"].get("queuing")
    return queuing and (queuing["queues"], queuing["handSize"], queuing["queueLengthLimit"])


async def test_priority_levels(started: Any) -> None:
    async with started() as api:
        found = [
            (each["metadata"]["name"], each["spec"]) for each in await items(api, f"{FLOW}/prioritylevelconfigurations")
        ]
    collected = []
    for name, spec in found:
        limits = spec.get("limited") or spec["exempt"]
        collected.append(
            (name, spec["type"], limits["nominalConcurrencyShares"], queues(limits) if "limited" in spec else None)
        )
    assert collected == LEVELS


async def test_flow_schemas_are_not_dangling(started: Any) -> None:
    async with started() as api:
        found = await items(api, f"{FLOW}/flowschemas")
    shown = [
        (
            each["metadata"]["name"],
            each["spec"]["priorityLevelConfiguration"]["name"],
            each["spec"]["matchingPrecedence"],
            (each["spec"].get("distinguisherMethod") or {}).get("type"),
        )
        for each in found
    ]
    assert shown == SCHEMAS
    for each in found:
        assert each["metadata"]["annotations"] == {"apf.kubernetes.io/autoupdate-spec": "true"}
        (condition,) = each["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("Dangling", "False", "Found")


async def test_edited_level_is_preserved_if_editable(started: Any) -> None:
    async with started() as api:
        for name, code in (("workload-low", 200), ("catch-all", 422)):
            path = f"{FLOW}/prioritylevelconfigurations/{name}"
            level = (await api.get(path)).tree
            before = level["spec"]["limited"]["nominalConcurrencyShares"]
            level["spec"]["limited"]["nominalConcurrencyShares"] = 77
            level["metadata"]["annotations"]["apf.kubernetes.io/autoupdate-spec"] = "false"
            assert (await api.put(path, level, content_type="application/json")).status == code
            await api.server.settle(6443)
            after = (await api.get(path)).tree["spec"]["limited"]["nominalConcurrencyShares"]
            assert after == (77 if code == 200 else before)


async def test_priority_classes(started: Any) -> None:
    async with started() as api:
        found = [(each["metadata"]["name"], each["value"]) for each in await items(api, CLASSES)]
    assert found == [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)]


async def test_each_group_version_has_an_api_service(started: Any) -> None:
    async with started() as api:
        found = await items(api, SERVICES)
    assert {each["metadata"]["name"]: each["spec"]["groupPriorityMinimum"] for each in found} == API_SERVICES
    for each in found:
        assert each["metadata"]["labels"] == {"kube-aggregator.kubernetes.io/automanaged": "onstart"}
        (condition,) = each["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("Available", "True", "Local")


@pytest.mark.parametrize(
    ("group", "version", "priority"),
    [
        ("", "v1", 1),
        ("apps", "v1", 15),
        ("autoscaling", "v2", 30),
        ("flowcontrol.apiserver.k8s.io", "v1", 21),
        ("resource.k8s.io", "v1", 21),
    ],
)
def test_version_priority(group: str, version: str, priority: int) -> None:
    assert priority_of(group, version).version == priority


async def test_legacy_token_tracking_date_is_recorded(started: Any) -> None:
    async with started() as api:
        config = (await api.get(TRACKING)).tree
        today = config["data"]["since"]
        for kept, written in (("2024-02-29", "2024-02-29"), (today, "not a day")):
            config = (await api.get(TRACKING)).tree | {"data": {"since": written}}
            assert (await api.put(TRACKING, config, content_type="application/json")).status == 200
            await api.server.settle(6443)
            assert (await api.get(TRACKING)).tree["data"] == {"since": kept}
